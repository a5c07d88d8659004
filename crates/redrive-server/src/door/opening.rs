//! Whether a server may be opened at all, and to whom: to everybody on this machine, or to those who have a token.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Timestamp;

use super::token::{Entropy, Scope, Token, TokenBook};
use crate::config::{Config, Sources, StoreUrl};

/// The exit code of a server that is not configured to start (`EX_CONFIG` of sysexits.h).
pub const EXIT_CONFIG: u8 = 78;

/// To whom a server is open.
#[derive(Clone)]
pub enum Entry {
    /// To everybody on this machine.
    Local,
    /// To those who have a token of this book.
    Tokens(Arc<dyn TokenBook>),
}

/// How a server opens.
pub struct Opening {
    /// To whom.
    pub entry: Entry,
    /// Where an admin token was written just now, to be said once.
    pub written: Option<PathBuf>,
}

/// Why a server does not start. Ends the process with [`EXIT_CONFIG`].
#[derive(Debug)]
pub struct NotOpened {
    /// The code, which has a page in docs/errors.
    pub code: &'static str,
    /// What is missing.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}\nhint: {}",
            self.code,
            crate::printable(&self.message),
            crate::printable(&self.hint)
        )
    }
}

impl std::error::Error for NotOpened {}

/// Decides to whom the server is open.
///
/// With a token file, its token is an admin's: taken from the file, or made and written there at the first start.
/// Without one, tokens in the book are asked for; where there never was any, the server is open on loopback, unless it has
/// a name there under which others reach it, and stays shut elsewhere. Once there was one, it is never open again: that
/// the last one was revoked or has expired must not let everybody in.
///
/// # Errors
///
/// Where it must not start.
pub async fn open(
    config: &Config,
    book: Arc<dyn TokenBook>,
    entropy: &Entropy,
    now: Timestamp,
) -> Result<Opening, NotOpened> {
    let unreadable = |error: redrive::Error| NotOpened {
        code: error.kind().code(),
        message: format!("the tokens cannot be read: {error}"),
        hint: "look at the store: redrive doctor".into(),
    };
    if let Some(path) = &config.token_file {
        let written = token_file(path, &*book, entropy, now).await?;
        return Ok(Opening { entry: Entry::Tokens(book), written });
    }
    let records = book.list().await.map_err(unreadable)?;
    let mut tokens = records.iter().filter(|record| record.session_of.is_none()).peekable();
    let had_tokens = tokens.peek().is_some();
    if tokens.any(|record| record.is_good(now)) {
        return Ok(Opening { entry: Entry::Tokens(book), written: None });
    }
    if had_tokens {
        return Err(NotOpened {
            code: "RETRY_AUTH_REQUIRED",
            message: format!("every token of {} was revoked or has expired", config.store.shown()),
            hint: format!(
                "make one with: redrive tokens create --scope admin --store {} NAME; or start with --token-file FILE, \
                 which writes one there",
                match &config.store {
                    StoreUrl::Sqlite(_) => config.store.shown(),
                    StoreUrl::Postgres(_) => "postgres://…".into(),
                }
            ),
        });
    }
    // Whoever has a name is reached through something that knows it: then not everybody who comes is on this machine.
    match (config.listen.ip().is_loopback(), config.hosts.first()) {
        (true, None) => Ok(Opening { entry: Entry::Local, written: None }),
        (is_loopback, host) => Err(NotOpened {
            code: "RETRY_AUTH_REQUIRED",
            message: match host.filter(|_| is_loopback) {
                Some(host) => format!("others reach this server as {host}, and there is no token"),
                None => format!("{} is off loopback, and there is no token", config.listen),
            },
            hint:
                "make one with: redrive tokens create --scope admin NAME; or start with --token-file FILE, \
                   which writes one there; or listen on 127.0.0.1 without hosts"
                    .into(),
        }),
    }
}

/// The admin token of the file is in the book. Where there is no file yet, both are made.
async fn token_file(
    path: &Path,
    book: &dyn TokenBook,
    entropy: &Entropy,
    now: Timestamp,
) -> Result<Option<PathBuf>, NotOpened> {
    let trouble = |what: &str| NotOpened {
        code: "RETRY_AUTH_REQUIRED",
        message: format!("the token file {} {what}", path.display()),
        hint: "remove it to have a new one made, or write --token-file with another path".into(),
    };
    let (token, written) = match read_token(path) {
        Ok(text) => (text.trim().parse::<Token>().map_err(|why| trouble(&why))?, None),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let token = Token::mint(entropy, "admin", Vec::new(), now, None).0;
            write_token(path, &token).map_err(|error| trouble(&format!("cannot be written: {error}")))?;
            (token, Some(path.to_owned()))
        }
        Err(error) => return Err(trouble(&format!("cannot be read: {error}"))),
    };
    let store_trouble = |error: redrive::Error| trouble(&format!("cannot be entered in the store: {error}"));
    match book.find(token.key_id()).await.map_err(store_trouble)? {
        None => {
            book.add(token.record("admin", vec![Scope::Admin], now, None)).await.map_err(store_trouble)?
        }
        Some(record) if !record.is_of(&token) || record.session_of.is_some() => {
            return Err(trouble("holds a token that is not the one the store has under its key id"));
        }
        // To enter it once more would undo what somebody did on purpose.
        Some(record) if record.revoked_at.is_some_and(|at| at <= now) => {
            return Err(trouble("holds a token that was revoked"));
        }
        Some(record) if !record.is_good(now) => return Err(trouble("holds a token that has expired")),
        Some(_) => {}
    }
    Ok(written)
}

fn read_token(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    Sources::judge_secret(&file.metadata()?).map_err(io::Error::other)?;
    let mut text = String::new();
    file.take(4_096).read_to_string(&mut text)?;
    Ok(text)
}

/// For its owner alone, and never over a file that is there.
fn write_token(path: &Path, token: &Token) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", token.reveal())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, ServeOptions};
    use crate::door::token::{MemoryTokenBook, TokenRecord};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    /// A server on this address, on loopback if it is none.
    fn config(listen: Option<&str>, token_file: Option<&Path>) -> Config {
        let options = ServeOptions {
            listen: listen.map(str::to_owned),
            insecure: true,
            token_file: token_file.map(Path::to_owned),
            ..ServeOptions::default()
        };
        config::load(&Sources::none().options(options)).unwrap()
    }

    async fn refused(config: &Config, book: &Arc<MemoryTokenBook>, now: Timestamp) -> NotOpened {
        open(config, book.clone(), &[7; 39], now).await.err().expect("it must not be open")
    }

    #[tokio::test]
    async fn a_server_is_not_open_to_everybody_because_its_last_token_was_revoked_or_has_expired() {
        for end in ["revoked", "expired"] {
            let book = Arc::new(MemoryTokenBook::default());
            let expires_at = (end == "expired").then_some(at(10));
            let (token, record) = Token::mint(&[1; 39], "admin", vec![Scope::Admin], at(0), expires_at);
            book.add(record).await.unwrap();
            if end == "revoked" {
                book.revoke(token.key_id(), at(10)).await.unwrap();
            }
            for listen in [None, Some("0.0.0.0:1")] {
                let config = config(listen, None);
                let before = open(&config, book.clone(), &[7; 39], at(9)).await.unwrap();
                assert!(matches!(before.entry, Entry::Tokens(_)), "{end}");
                let after = refused(&config, &book, at(10)).await;
                assert_eq!(after.code, "RETRY_AUTH_REQUIRED", "{end}");
                assert!(
                    after.hint.contains("redrive tokens create --scope admin --store sqlite:"),
                    "{after}"
                );
            }
            // What the message names is a way back.
            book.add(Token::mint(&[2; 39], "new", vec![Scope::Admin], at(11), None).1).await.unwrap();
            assert!(matches!(
                open(&config(None, None), book, &[7; 39], at(12)).await.unwrap().entry,
                Entry::Tokens(_)
            ));
        }
    }

    #[tokio::test]
    async fn a_session_that_outlived_its_token_is_no_token() {
        let book = Arc::new(MemoryTokenBook::default());
        let (_, session) = Token::mint(&[1; 39], "ops", Vec::new(), at(0), None);
        book.add(TokenRecord { session_of: Some("gone".into()), ..session }).await.unwrap();
        let opening = open(&config(None, None), book, &[7; 39], at(1)).await.unwrap();
        assert!(matches!(opening.entry, Entry::Local));
    }

    #[tokio::test]
    async fn a_token_file_whose_token_is_good_no_more_does_not_open_a_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.token");
        let config = config(None, Some(&path));
        let book = Arc::new(MemoryTokenBook::default());
        open(&config, book.clone(), &[7; 39], at(0)).await.unwrap();
        let token: Token = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
        book.revoke(token.key_id(), at(10)).await.unwrap();
        let why = refused(&config, &book, at(10)).await;
        assert!(why.message.ends_with("admin.token holds a token that was revoked"), "{why}");
        assert!(why.hint.contains("remove it to have a new one made"), "{why}");

        fs::remove_file(&path).unwrap();
        let again = open(&config, book.clone(), &[8; 39], at(11)).await.unwrap();
        assert!(again.written.is_some() && matches!(again.entry, Entry::Tokens(_)));

        let (expiring, record) = Token::mint(&[9; 39], "admin", vec![Scope::Admin], at(0), Some(at(20)));
        book.add(record).await.unwrap();
        fs::write(&path, expiring.reveal()).unwrap();
        let why = refused(&config, &book, at(20)).await;
        assert!(why.message.ends_with("holds a token that has expired"), "{why}");

        let mut same_id = [3; 39];
        same_id[..7].fill(9);
        fs::write(&path, Token::mint(&same_id, "", Vec::new(), at(0), None).0.reveal()).unwrap();
        let why = refused(&config, &book, at(1)).await;
        assert!(why.message.contains("is not the one the store has"), "{why}");
    }

    #[tokio::test]
    async fn a_token_file_that_others_could_have_written_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.token");
        let config = config(None, Some(&path));
        let book = Arc::new(MemoryTokenBook::default());
        open(&config, book.clone(), &[7; 39], at(0)).await.unwrap();
        let owner = rustix::process::geteuid();
        for (mode, is_taken) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false), (0o666, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let opened = open(&config, book.clone(), &[7; 39], at(1)).await;
            assert_eq!(opened.is_ok(), is_taken, "{mode:o}");
            if let Err(why) = opened {
                assert!(why.message.contains("take that away: chmod go-w"), "{why}");
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        // Only root can give a file away.
        if owner.is_root() {
            chown(&path, Some(4_242), None).unwrap();
            let why = refused(&config, &book, at(1)).await;
            assert!(why.message.contains("belongs to user 4242"), "{why}");
            assert!(why.message.contains("make it yours: chown 0"), "{why}");
        }
    }
}
