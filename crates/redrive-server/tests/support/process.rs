//! A real `redrive serve`, which can be killed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::client::within;

/// The process. It is killed with the test.
pub(crate) struct Process {
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Process {
    /// Starts one on the file in this folder, and returns when it serves.
    pub(crate) async fn start(folder: &Path) -> Process {
        Process::on(&format!("sqlite:{}", folder.join("jobs.db").display()), folder).await
    }

    /// The same on this store, with the config file in this folder if there is one.
    pub(crate) async fn on(store: &str, folder: &Path) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_redrive"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--store", store])
            .current_dir(folder)
            // The tests have variables of their own, and a server refuses those that it does not know.
            .env_clear()
            // How soon it is noticed that somebody has fallen silent.
            .env("REDRIVE_LEASE", "2s")
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = within(async {
            loop {
                let line = lines.next_line().await.unwrap().expect("it ended before it served");
                if let Some((_, rest)) = line.split_once("http://") {
                    let end = rest.find('"').unwrap();
                    return rest[..end].parse().unwrap();
                }
            }
        });
        let address = address.await;
        // A process that nobody listens to stops when the pipe is full.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Process { address, child }
    }

    /// Kills it, and returns when it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
