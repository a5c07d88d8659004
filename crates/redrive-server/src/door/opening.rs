//! Whether a server may be opened at all, and to whom: to everybody on this machine, or to those who have a token.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::Timestamp;

use super::token::{Entropy, Scope, Token, TokenBook};
use crate::config::Config;

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
/// Without one, tokens in the book are asked for; without any, the server is open on loopback, unless it has a name
/// there under which others reach it, and stays shut elsewhere.
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
    let written = match &config.token_file {
        Some(path) => token_file(path, &*book, entropy, now).await?,
        None => None,
    };
    let records = book.list().await.map_err(unreadable)?;
    let has_tokens = records.iter().any(|record| record.session_of.is_none() && record.is_good(now));
    if has_tokens {
        return Ok(Opening { entry: Entry::Tokens(book), written });
    }
    // Whoever has a name is reached through something that knows it: then not everybody who comes is on this machine.
    match (config.listen.ip().is_loopback(), config.hosts.first()) {
        (true, None) => Ok(Opening { entry: Entry::Local, written }),
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
    if book.find(token.key_id()).await.map_err(store_trouble)?.is_none() {
        book.add(token.record("admin", vec![Scope::Admin], now, None)).await.map_err(store_trouble)?;
    }
    Ok(written)
}

fn read_token(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o002 != 0 {
        return Err(io::Error::other("everyone may write it; take that away: chmod o-w"));
    }
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
