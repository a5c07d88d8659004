//! How a command reaches the API: on a server, or in this process on a store of its own. The answers are the same.
//!
//! A SQLite file belongs to one process at a time. Where a server has it, the server has left its URL beside the file,
//! and the command asks there.

use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};
use redrive::{ErrorKind, MemoryStore, PostgresStore, SqliteStore};
use redrive_server::config::{self, Config, ServeOptions, Sources, StoreUrl};
use redrive_server::remote::{Remote, Trust};
use redrive_server::serve;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tower::ServiceExt as _;

use crate::trouble::{Done, Exit, Trouble};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// Where the jobs are, and how to answer.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Target {
    /// Ask this server, such as http://127.0.0.1:7373 [env: REDRIVE_SERVER]
    #[arg(long, value_name = "URL", help_heading = "Where", conflicts_with = "store")]
    pub(crate) server: Option<String>,
    /// The file with the token for the server [env: REDRIVE_TOKEN_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust whom this PEM file names to vouch for the server, and nobody else [env: REDRIVE_CA_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The PEM file with our certificate and its key, for a server that asks for one [env: REDRIVE_CERT_FILE]
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) cert_file: Option<PathBuf>,
    /// Open this store [default: the configured one, else sqlite:redrive.db]
    #[arg(long, value_name = "sqlite:PATH|postgres://…", help_heading = "Where")]
    pub(crate) store: Option<String>,
    /// The config file, instead of ./redrive.toml
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON: exactly the `data` of the API's answer
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a command needs to find there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// A store that exists.
    Store,
    /// A store, which may be made.
    AnyStore,
    /// Nothing that is stored: only what is configured.
    Config,
    /// A server that runs.
    Server,
}

impl Target {
    pub(crate) fn sources(&self) -> Sources {
        Sources::of_process(&ServeOptions {
            store: self.store.clone(),
            config: self.config.clone(),
            ..ServeOptions::default()
        })
    }

    /// The way to the API.
    pub(crate) async fn reach(&self, need: Need) -> Done<Client> {
        let sources = self.sources();
        let given = self.token_file.clone().or_else(|| sources.token_file());
        let trust = self.trust(&sources);
        let server = self.server.as_deref().or_else(|| sources.server().filter(|_| self.store.is_none()));
        if let Some(url) = server {
            return Client::there(url, given.as_deref(), &trust);
        }
        let config = config::load(&sources).map_err(|mistakes| Trouble::config(&mistakes))?;
        if need == Need::Config {
            return Ok(Client { way: Way::Here(serve::at_hand(&config, Arc::new(MemoryStore::new()))?) });
        }
        let token = given.or_else(|| config.token_file.clone());
        here(&config, need, token.as_deref(), &trust).await
    }

    fn trust(&self, sources: &Sources) -> Trust {
        let Trust { ca, cert } = sources.trust();
        Trust { ca: self.ca_file.clone().or(ca), cert: self.cert_file.clone().or(cert) }
    }
}

/// The configured store, or the server that has it.
async fn here(config: &Config, need: Need, token: Option<&Path>, trust: &Trust) -> Done<Client> {
    if let StoreUrl::Sqlite(path) = &config.store
        && need != Need::AnyStore
        && !path.exists()
    {
        let message = format!("there is no store at {}", path.display());
        let hint = "name one with --store or --server; `redrive serve` and `redrive enqueue` make one";
        return Err(Trouble::new(Exit::Unreachable, message).hint(hint));
    }
    // Whoever only looks makes no store of somebody else's database.
    if need != Need::AnyStore && has_no_tables(config).await {
        let message = format!("there is no store in {}: it has no tables of Redrive's", config.store.shown());
        let hint =
            "see whether this is the right one; `redrive serve` and `redrive migrate` make a store of it";
        return Err(Trouble::new(Exit::Unreachable, message).hint(hint));
    }
    let serving = || match &config.store {
        StoreUrl::Sqlite(path) => serving(path),
        StoreUrl::Postgres(_) => None,
    };
    match serve::open_store_soon(config, || serving().is_some()).await {
        Ok(_) if need == Need::Server => {
            let message = format!("nobody serves {}", config.store.shown());
            Err(Trouble::new(Exit::Unreachable, message)
                .hint("start `redrive serve`, or name a server with --server"))
        }
        Ok(store) => Ok(Client { way: Way::Here(serve::at_hand(config, store)?) }),
        Err(error) if error.kind() == ErrorKind::InUse => {
            let url = serving().ok_or_else(|| {
                let trouble = Trouble::store(&error);
                trouble.hint("whoever has it is no `redrive serve` that can be asked: stop it, or ask it in its own way")
            })?;
            Client::there(&url, token, trust)
        }
        Err(error) => Err(Trouble::store(&error)),
    }
}

/// What cannot be looked at says why when it is opened, and whoever has it is about to make them.
async fn has_no_tables(config: &Config) -> bool {
    let (schema, holder) = match &config.store {
        StoreUrl::Sqlite(path) => (SqliteStore::schema_at(path).await, SqliteStore::holder_at(path).await),
        StoreUrl::Postgres(url) => (PostgresStore::schema_at(url).await, Ok(None)),
    };
    schema.is_ok_and(|schema| schema.found.is_none()) && holder.is_ok_and(|holder| holder.is_none())
}

/// The file beside a SQLite file in which a server leaves its URL while it runs.
pub(crate) fn serving_file(store: &Path) -> PathBuf {
    // Beside the file itself, by whatever link somebody comes.
    let mut name = fs::canonicalize(store).unwrap_or_else(|_| store.to_owned()).into_os_string();
    name.push(".serving");
    name.into()
}

/// The URL of the server that has this file, if it has left one. A token will be sent there, so nobody but the owner of
/// the store may have written it.
fn serving(store: &Path) -> Option<String> {
    let file = serving_file(store);
    let (about, owner) = (fs::symlink_metadata(&file).ok()?, fs::metadata(store).ok()?.uid());
    let is_trusted = about.is_file() && about.uid() == owner && about.mode() & 0o022 == 0;
    if !is_trusted {
        return None;
    }
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// Somebody who answers as the API does.
pub(crate) struct Client {
    way: Way,
}

enum Way {
    Here(axum::Router),
    There(Remote),
}

impl Client {
    fn there(url: &str, token_file: Option<&Path>, trust: &Trust) -> Done<Client> {
        let token = token_file.map(read_token).transpose()?;
        let remote = Remote::new(url, token.as_deref()).map_err(|error| {
            Trouble::usage(format!("{error}"), "give --server the URL of a Redrive server")
        })?;
        // Without any, the system's certificates are looked for only where they are needed.
        let remote = match (&trust.ca, &trust.cert) {
            (None, None) => remote,
            _ => remote.trusting(trust).map_err(|error| {
                Trouble::usage(format!("{error:#}"), "give --ca-file and --cert-file the paths of PEM files")
            })?,
        };
        Ok(Client { way: Way::There(remote) })
    }

    /// What is there.
    pub(crate) async fn get(&self, path: &str) -> Done<Data> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// What comes of sending this.
    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> Done<Data> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// The `data` of the answer to a request.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Done<Data> {
        let bytes = match body {
            Some(body) => {
                serde_json::to_vec(body).map_err(|error| Trouble::from(anyhow::Error::from(error)))?
            }
            None => Vec::new(),
        };
        let answer = self.send(method, path, bytes, None).await?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| self.unreachable(&error.to_string()))?
            .to_bytes();
        if !status.is_success() {
            return Err(Trouble::refused(status, &bytes));
        }
        let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| Trouble::refused(status, &bytes))?;
        Ok(Data(answer.data))
    }

    /// What comes, piece by piece, for as long as it comes; from behind the event with this id on, if there was one.
    pub(crate) async fn stream(&self, path: &str, last: Option<&str>) -> Done<BodyDataStream> {
        let answer = self.send(Method::GET, path, Vec::new(), last).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body().into_data_stream());
        }
        let bytes = answer.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(Trouble::refused(status, &bytes))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        last: Option<&str>,
    ) -> Done<Response<Body>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/api/v1{path}"))
            .header("content-type", "application/json");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request =
            request.body(Bytes::from(body)).map_err(|error| Trouble::from(anyhow::Error::from(error)))?;
        match &self.way {
            Way::Here(router) => match router.clone().oneshot(request.map(Body::from)).await {
                Ok(answer) => Ok(answer),
                Err(never) => match never {},
            },
            Way::There(remote) => match remote.send(request).await {
                Ok(answer) => Ok(answer.map(Body::new)),
                Err(error) => Err(self.unreachable(&format!("{error:#}"))),
            },
        }
    }

    /// Trouble on the way.
    pub(crate) fn unreachable(&self, why: &str) -> Trouble {
        let whom = match &self.way {
            Way::Here(_) => "the store".to_owned(),
            Way::There(remote) => format!("the server at {}", remote.shown()),
        };
        let trouble = Trouble::new(Exit::Unreachable, format!("{whom} cannot be reached: {why}"));
        trouble.hint(
            "is it running there, and does its URL begin with http:// or https:// as it says when it starts? A \
             certificate of its own is vouched for with --ca-file",
        )
    }
}

fn read_token(path: &Path) -> Done<String> {
    let text = fs::read_to_string(path).map_err(|error| {
        let trouble =
            Trouble::new(Exit::Failed, format!("the token in {} cannot be read: {error}", path.display()));
        match error.kind() {
            IoErrorKind::NotFound => trouble.hint("--token-file names the file that holds the token"),
            _ => trouble,
        }
    })?;
    match text.trim() {
        "" => Err(Trouble::new(Exit::Failed, format!("there is no token in {}", path.display()))
            .hint("write one into it; `redrive tokens create` prints one")),
        token => Ok(token.to_owned()),
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Box<RawValue>,
}

/// The `data` of an answer, as it came: its keys in their order, its numbers to the digit.
pub(crate) struct Data(Box<RawValue>);

impl Data {
    /// As text.
    pub(crate) fn raw(&self) -> &str {
        self.0.get()
    }

    /// As what the command knows how to show.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Done<T> {
        serde_json::from_str(self.raw()).map_err(|error| {
            Trouble::new(Exit::Failed, format!("the server's answer is not understood: {error}"))
                .hint("it may be of another version: use --json")
        })
    }
}

/// `?state=dead&kind=http`, or nothing.
pub(crate) fn query(pairs: &[(&str, String)]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    url::form_urlencoded::Serializer::for_suffix("?".to_owned(), 1).extend_pairs(pairs).finish()
}

/// A part of a path, whatever is in it.
pub(crate) fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
