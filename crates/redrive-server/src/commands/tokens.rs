//! `redrive tokens`: who may come in.

use clap::{Args, Subcommand};
use http::Method;
use redrive::{Clock, Timestamp, span};
use redrive_server::config::closest;
use redrive_server::door::Scope;
use redrive_server::printable;
use serde::Deserialize;
use serde_json::json;

use super::many::confirm;
use super::print_json;
use crate::client::{Need, Target, segment};
use crate::out::{self, Colour};
use crate::table::{Table, id, text};
use crate::times;
use crate::trouble::Done;

/// What to do with tokens.
#[derive(Subcommand)]
pub(crate) enum TokensCommand {
    /// Make a token; it is printed once and kept nowhere
    ///
    ///     redrive tokens create shop --scope enqueue --scope read > shop.token
    #[command(verbatim_doc_comment)]
    Create(Create),
    /// List the tokens, without their secrets
    List(Tokens),
    /// Make a token worthless, on every server
    Revoke(Revoke),
}

/// A token to be made.
#[derive(Args)]
pub(crate) struct Create {
    /// Whose it is, for people
    name: String,
    /// What it allows: read, read:payload, enqueue, work, work:QUEUE, operate or admin; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<String>,
    /// For how long it is good, such as 90d [default: until it is revoked]
    #[arg(long, value_name = "DURATION", value_parser = span::parse)]
    expires_in: Option<std::time::Duration>,
    #[command(flatten)]
    target: Target,
}

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Tokens {
    #[command(flatten)]
    target: Target,
}

/// Which token.
#[derive(Args)]
pub(crate) struct Revoke {
    /// Its key id: see `redrive tokens list`
    key_id: String,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

/// A scope as it is written.
fn scope(text: &str) -> Result<String, String> {
    const WORDS: [&str; 7] = ["read", "read:payload", "enqueue", "work", "work:QUEUE", "operate", "admin"];
    match (text.parse::<Scope>(), closest(text, WORDS)) {
        (Ok(_), _) => Ok(text.to_owned()),
        (Err(_), Some(meant)) => Err(format!("{text:?} is no scope; did you mean {meant:?}?")),
        (Err(_), None) => Err(format!("{text:?} is no scope; write one of {}", WORDS.join(", "))),
    }
}

#[derive(Deserialize)]
struct Made {
    token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenLine {
    key_id: String,
    name: String,
    scopes: Vec<String>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
}

pub(crate) async fn run(command: TokensCommand) -> Done {
    match command {
        TokensCommand::Create(create) => make(create).await,
        TokensCommand::List(Tokens { target }) => {
            let data = target.reach(Need::Store).await?.get("/tokens").await?;
            match target.json {
                true => print_json(&data),
                false => print(&data.read::<Vec<TokenLine>>()?),
            }
            Ok(())
        }
        TokensCommand::Revoke(Revoke { key_id, yes, target }) => {
            let client = target.reach(Need::Store).await?;
            if !yes {
                confirm(&format!("Make the token {} worthless?", printable(&key_id))).await?;
            }
            let path = format!("/tokens/{}", segment(&key_id));
            let data = client.ask(Method::DELETE, &path, None::<&()>).await?;
            match target.json {
                true => print_json(&data),
                false => print(&[data.read()?]),
            }
            Ok(())
        }
    }
}

async fn make(Create { name, scopes, expires_in, target }: Create) -> Done {
    let mut body = json!({ "name": name, "scopes": scopes });
    if let Some(wait) = expires_in {
        body["expiresIn"] = span::format(wait).into();
    }
    let data = target.reach(Need::AnyStore).await?.post("/tokens", &body).await?;
    if target.json {
        print_json(&data);
        return Ok(());
    }
    // Alone on stdout, so that it can go into a file.
    out::answer(&printable(&data.read::<Made>()?.token));
    out::note("keep it: it is not shown again");
    Ok(())
}

fn print(tokens: &[TokenLine]) {
    if tokens.is_empty() {
        out::note("no tokens");
        return;
    }
    let now = Clock::system().now();
    let mut table = Table::new(&["key id", "name", "state", "made", "last used", "scopes"]);
    for token in tokens {
        let (state, colour) = match (token.revoked_at, token.expires_at) {
            (Some(at), _) => (format!("revoked {}", times::relative(at, now)), Colour::Red),
            (None, Some(at)) if at <= now => (format!("expired {}", times::relative(at, now)), Colour::Red),
            (None, Some(at)) => (format!("expires {}", times::relative(at, now)), Colour::Green),
            (None, None) => ("good".to_owned(), Colour::Green),
        };
        table.row(vec![
            id(&token.key_id),
            text(&token.name),
            text(state).coloured(Some(colour)),
            text(times::relative(token.created_at, now)),
            text(token.last_used_at.map_or_else(|| "never".to_owned(), |at| times::relative(at, now))),
            text(token.scopes.join(", ")),
        ]);
    }
    table.print();
}
