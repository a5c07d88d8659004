//! A whole server in this process, on a port of its own: on a SQLite file, or on a database of its own where a test is in
//! a module called `on_postgres`.

use std::net::SocketAddr;

use redrive_server::config::{self, Sources};
use redrive_server::serve::Server;
use redrive_testbed::Database;
use tokio::sync::oneshot;

/// The server. It ends with the test.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
    _folder: tempfile::TempDir,
    _database: Option<Database>,
}

/// Whether the test that runs on this thread is one of those for PostgreSQL.
pub(crate) fn is_on_postgres() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("on_postgres::"))
}

impl Served {
    /// With this in its config file, beside where it listens and what it keeps.
    pub(crate) async fn with(settings: &str) -> Served {
        if is_on_postgres() {
            let database = redrive_testbed::database().await;
            let served = Served::on(Some(database.url()), settings).await;
            return Served { _database: Some(database), ..served };
        }
        Served::on(None, settings).await
    }

    /// On this store, or on a file of its own.
    pub(crate) async fn on(store: Option<&str>, settings: &str) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("redrive.toml");
        let own = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstore = \"{}\"\ndurability = \"relaxed\"\n{settings}",
            store.unwrap_or(&own)
        );
        std::fs::write(&file, text).unwrap();
        let config = config::load(&Sources::none().file(file)).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
        let server = Server::open(config, None).await.unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async move { drop(stopped.await) }));
        Served { address, _stop: stop, _folder: folder, _database: None }
    }
}
