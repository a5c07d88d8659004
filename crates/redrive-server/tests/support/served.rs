//! A whole server on a SQLite file, in this process, on a port of its own.

use std::net::SocketAddr;

use redrive_server::config::{self, Sources};
use redrive_server::serve::Server;
use tokio::sync::oneshot;

/// The server. It ends with the test.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
    _folder: tempfile::TempDir,
}

impl Served {
    /// With this in its config file, beside where it listens and what it keeps.
    pub(crate) async fn with(settings: &str) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("redrive.toml");
        let store = folder.path().join("jobs.db");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstore = \"sqlite:{}\"\ndurability = \"relaxed\"\n{settings}",
            store.display()
        );
        std::fs::write(&file, text).unwrap();
        let config = config::load(&Sources::none().file(file)).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
        let server = Server::open(config, None).await.unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async move { drop(stopped.await) }));
        Served { address, _stop: stop, _folder: folder }
    }
}
