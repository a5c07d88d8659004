//! What is done to a whole store: copied, put back, held, let go on, brought up to date.

use std::path::{Path, PathBuf};

use clap::Args;
use redrive::{ErrorKind, PostgresStore, Schema, SqliteStore};
use redrive_server::config::{self, Config, StoreUrl};
use redrive_server::serve;

use super::print_json;
use crate::client::{Need, Target};
use crate::out;
use crate::trouble::{Done, Exit, Trouble};

/// A file, and the store.
#[derive(Args)]
pub(crate) struct Copy {
    /// The copy
    file: PathBuf,
    #[command(flatten)]
    which: WhichStore,
}

/// Which store, by itself or by the config that names it.
#[derive(Args)]
pub(crate) struct WhichStore {
    /// The store [default: the configured one, else sqlite:redrive.db]
    #[arg(long, value_name = "sqlite:PATH|postgres://…", help_heading = "Where")]
    store: Option<String>,
    /// The config file, instead of ./redrive.toml
    #[arg(long, value_name = "FILE", help_heading = "Where")]
    config: Option<PathBuf>,
}

/// Nothing but where to ask.
#[derive(Args)]
pub(crate) struct Switch {
    #[command(flatten)]
    target: Target,
}

/// What to bring up to date.
#[derive(Args)]
pub(crate) struct Migrate {
    /// Only say whether there is something to do: exit code 1 if there is, 4 if the store is newer than this version
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    which: WhichStore,
}

impl WhichStore {
    fn config(&self) -> Done<Config> {
        let target = Target { store: self.store.clone(), config: self.config.clone(), ..Target::default() };
        config::load(&target.sources()).map_err(|mistakes| Trouble::config(&mistakes))
    }
}

/// PostgreSQL copies itself better than we could.
fn not_ours(what: &str, how: &str) -> Trouble {
    Trouble::new(Exit::Failed, format!("a PostgreSQL database {what} with PostgreSQL's own programs"))
        .hint(how)
}

pub(crate) async fn backup(given: Copy) -> Done {
    match given.which.config()?.store {
        StoreUrl::Sqlite(path) => {
            if !path.exists() {
                let message = format!("there is no store at {}", path.display());
                return Err(Trouble::new(Exit::Unreachable, message).hint("name one with --store"));
            }
            SqliteStore::backup_at(&path, &given.file).await.map_err(|error| Trouble::store(&error))?;
            out::note(&format!("{} is a copy of {}", given.file.display(), path.display()));
            Ok(())
        }
        StoreUrl::Postgres(_) => Err(not_ours(
            "is copied",
            "pg_dump --format=custom --schema=redrive --file=FILE postgres://…; it is whole while servers run",
        )),
    }
}

pub(crate) async fn restore(given: Copy) -> Done {
    match given.which.config()?.store {
        StoreUrl::Sqlite(path) => {
            if !given.file.exists() {
                let message = format!("there is no copy at {}", given.file.display());
                return Err(
                    Trouble::new(Exit::Unreachable, message).hint("make one with: redrive backup FILE")
                );
            }
            SqliteStore::restore_at(&given.file, &path)
                .await
                .map_err(|error| no_copy(&given.file, &error))?;
            out::note(&format!(
                "{} is held: nothing runs until `redrive resume`. Jobs that were done since the copy would be done again",
                path.display()
            ));
            Ok(())
        }
        StoreUrl::Postgres(_) => Err(not_ours(
            "is put back",
            "stop the servers; psql -c 'DROP SCHEMA redrive CASCADE' postgres://…; pg_restore --dbname=postgres://… FILE; \
             then `redrive hold`, start the servers, look, and `redrive resume`",
        )),
    }
}

/// Why a copy was not put back. One that cannot be read is none.
fn no_copy(file: &Path, error: &redrive::Error) -> Trouble {
    match error.kind() {
        ErrorKind::Corrupt => Trouble::new(Exit::Failed, format!("{} is no copy of a store", file.display()))
            .hint("make one with: redrive backup FILE"),
        _ => Trouble::store(error),
    }
}

pub(crate) async fn hold(given: Switch) -> Done {
    switch(
        &given.target,
        "/hold",
        "held: nothing begins anywhere until `redrive resume`; what runs may finish",
    )
    .await
}

pub(crate) async fn resume(given: Switch) -> Done {
    switch(&given.target, "/resume", "goes on").await
}

async fn switch(target: &Target, path: &str, said: &str) -> Done {
    let data = target.reach(Need::Store).await?.post(path, &serde_json::json!({})).await?;
    match target.json {
        true => print_json(&data),
        false => out::note(said),
    }
    Ok(())
}

pub(crate) async fn migrate(given: Migrate) -> Done {
    let config = given.which.config()?;
    let schema = schema(&config).await?;
    let found = schema.found.map_or("no schema yet".to_owned(), |found| format!("schema {found}"));
    let known = schema.known;
    match schema.found {
        Some(found) if found > known => {
            let message = format!("the store has schema {found}, and this version knows {known}");
            return Err(Trouble::new(Exit::Conflict, message).hint("use the newer version that wrote it"));
        }
        Some(found) if found == known => {
            out::note(&format!("schema {found} is the newest: there is nothing to do"));
            return Ok(());
        }
        _ if given.check => {
            let message = format!("the store has {found}, and this version would make it schema {known}");
            return Err(Trouble::new(Exit::Failed, message).hint("bring it up to date with: redrive migrate"));
        }
        _ => {}
    }
    // Opening is what brings it up to date, under a lock, all or nothing.
    drop(serve::open_store(&config).await.map_err(|error| Trouble::store(&error))?);
    out::note(&format!("the store had {found} and has schema {known} now"));
    Ok(())
}

async fn schema(config: &Config) -> Done<Schema> {
    let found = match &config.store {
        StoreUrl::Sqlite(path) if !path.exists() => {
            let message = format!("there is no store at {}", path.display());
            return Err(Trouble::new(Exit::Unreachable, message).hint("name one with --store"));
        }
        StoreUrl::Sqlite(path) => SqliteStore::schema_at(path).await,
        StoreUrl::Postgres(url) => PostgresStore::schema_at(url).await,
    };
    found.map_err(|error| Trouble::store(&error))
}
