//! Where a measurement takes place: a file in a folder, or a database on a server, made for it and gone afterwards.

use std::cell::{Cell, RefCell};
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::cli::StoreUrl;

pub(crate) enum Ground {
    Folder { folder: TempDir, made: Cell<u32> },
    Server(Box<Server>),
}

pub(crate) struct Server {
    client: Client,
    url: String,
    made: RefCell<Vec<String>>,
    runtime: tokio::runtime::Handle,
}

impl Ground {
    pub(crate) fn new(store: Option<&StoreUrl>, runtime: &Runtime) -> Result<Ground> {
        let folder = match store {
            Some(StoreUrl::Postgres(url)) => return Ground::on_server(url, runtime),
            Some(StoreUrl::Sqlite(path)) => TempDir::with_prefix_in("redrive-bench-", folder_of(path)),
            None => TempDir::with_prefix("redrive-bench-"),
        };
        let folder =
            folder.context("cannot make a folder for the benchmark; choose another place with --store")?;
        Ok(Ground::Folder { folder, made: Cell::new(0) })
    }

    fn on_server(url: &str, runtime: &Runtime) -> Result<Ground> {
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            anyhow::Ok(client)
        });
        let client = client.context("cannot reach the server of --store")?;
        let made = RefCell::default();
        let runtime = runtime.handle().clone();
        Ok(Ground::Server(Box::new(Server { client, url: url.into(), made, runtime })))
    }

    /// An empty store.
    pub(crate) fn fresh(&self, runtime: &Runtime) -> Result<StoreUrl> {
        match self {
            Ground::Folder { folder, made } => {
                made.set(made.get() + 1);
                let folder = folder.path().join(made.get().to_string());
                std::fs::create_dir(&folder)?;
                Ok(StoreUrl::Sqlite(folder.join("bench.db")))
            }
            Ground::Server(server) => {
                let Server { client, url, made, .. } = &**server;
                let name = format!("redrive_bench_{}_{}", std::process::id(), made.borrow().len());
                // What the last one left to be written must not disturb the next.
                runtime.block_on(client.batch_execute("CHECKPOINT")).ok();
                runtime
                    .block_on(client.batch_execute(&format!("CREATE DATABASE {name}")))
                    .context("cannot make a database for the benchmark; use a role that may")?;
                made.borrow_mut().push(name.clone());
                Ok(StoreUrl::Postgres(in_database(url, &name)))
            }
        }
    }

    /// A store that is no longer needed.
    pub(crate) fn clear(&self, runtime: &Runtime, store: &StoreUrl) -> Result<()> {
        match (self, store) {
            (Ground::Server(server), StoreUrl::Postgres(url)) => {
                let name = url.split(['/', '?']).find(|part| part.starts_with("redrive_bench_"));
                let name = name.context("it was made here")?;
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                runtime.block_on(server.client.batch_execute(&drop)).context("cannot remove a database again")
            }
            (_, StoreUrl::Sqlite(path)) => {
                let folder = path.parent().context("it was made in a folder")?;
                std::fs::remove_dir_all(folder).context("cannot remove a folder again")
            }
            (Ground::Folder { .. }, StoreUrl::Postgres(_)) => Ok(()),
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Ground::Server(server) = self {
            let Server { client, made, runtime, .. } = &**server;
            for name in made.borrow().iter() {
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                // What cannot be removed now is named so that a person can.
                runtime.block_on(client.batch_execute(&drop)).ok();
            }
        }
    }
}

/// The same server, another database.
fn in_database(url: &str, name: &str) -> String {
    let (before, options) = url.split_once('?').map_or((url, ""), |(before, after)| (before, after));
    let authority = before.find("://").map_or(0, |at| at + 3);
    let server = match before[authority..].find('/') {
        Some(slash) => &before[..authority + slash],
        None => before,
    };
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{server}/{name}{mark}{options}")
}

/// The folder itself, or the one in which the file would be.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        _ if path.is_dir() => path,
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_a_url_is_replaced() {
        let made = |url| in_database(url, "b");
        assert_eq!(made("postgres://me:pw@host:5432/a?x=1"), "postgres://me:pw@host:5432/b?x=1");
        assert_eq!(made("postgres://host"), "postgres://host/b");
        assert_eq!(
            made("postgres://h1,h2/a?target_session_attrs=read-write"),
            "postgres://h1,h2/b?target_session_attrs=read-write"
        );
    }
}
