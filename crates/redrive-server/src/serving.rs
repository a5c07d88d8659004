//! `redrive serve` as a process: reads the configuration, says what is wrong with it, and serves until it is told to stop.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use redrive_server::config::{self, ServeOptions, Sources, StoreUrl};
use redrive_server::demo::Demo;
use redrive_server::door::{EXIT_CONFIG, NotOpened, Tls};
use redrive_server::serve::Server;
use redrive_server::telemetry::{self, Metrics};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::trouble::{Exit, Trouble};
use crate::{client, out};

pub(crate) fn run(options: &ServeOptions) -> ExitCode {
    let config = match config::load(&Sources::of_process(options)) {
        Ok(config) => config,
        Err(mistakes) => {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            out::complain(&anyhow::anyhow!("the configuration has mistakes\n{}", lines.join("\n")));
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")
        .and_then(|runtime| runtime.block_on(serve(config, options.demo)));
    match served {
        Err(error) if is_in_use(&error) => {
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default().to_owned();
            out::trouble(&Trouble::new(Exit::Failed, message).hint(
                "stop that process, or ask it: commands that name the store find the server that has it",
            ))
        }
        Err(error) if error.is::<NotOpened>() => {
            out::complain(&error);
            ExitCode::from(EXIT_CONFIG)
        }
        served => out::exit_code(served),
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<redrive::Error>().is_some_and(|error| error.kind() == redrive::ErrorKind::InUse)
}

async fn serve(mut config: config::Config, demo: bool) -> Result<()> {
    let _log = telemetry::log(&config.log, config.log_format)?;
    let metrics = Metrics::install().context("cannot count")?;
    let store = config.store.clone();
    let demo = if demo { Some(Demo::new().await?) } else { None };
    if let Some(demo) = &demo {
        demo.prepare(&mut config);
    }
    let server = Server::open(config, Some(metrics)).await?;
    let url = server.url()?;
    // Kept until the end: the store is ours for as long.
    let _notice = Notice::leave(&store, &url);
    if let Some(tls) = server.tls() {
        let hangup = signal(SignalKind::hangup())?;
        tokio::spawn(renew(tls, hangup));
    }
    if server.engine().is_held().await? {
        tracing::warn!("Held: nothing runs until `redrive resume`");
    }
    tracing::info!(store = store.shown(), %url, "Serving");
    let _demo = match demo {
        Some(demo) => Some(demo.start(&server).await),
        None => None,
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    server
        .run(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("Stopping: nothing new is taken, what runs may finish");
        })
        .await?;
    tracing::info!("Stopped");
    Ok(())
}

/// Reads the certificates again whenever the process is told to.
async fn renew(tls: Arc<Tls>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("The certificates were read again"),
            Err(error) => {
                tracing::error!(%error, "The certificates cannot be read again; those from before are used on");
            }
        }
    }
}

/// The server's URL in a file beside its SQLite file, so that a command that finds the store in use knows whom to ask.
/// Taken away when it is dropped; one that was left behind by a crash is never looked at, since the store can be opened.
struct Notice(PathBuf);

impl Notice {
    /// None for PostgreSQL, which many can open; none where it cannot be written, which is no reason not to serve.
    fn leave(store: &StoreUrl, url: &str) -> Option<Notice> {
        let StoreUrl::Sqlite(store) = store else { return None };
        let path = client::serving_file(store);
        match write(&path, url) {
            Ok(()) => Some(Notice(path)),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "Commands that name the store will not find this server");
                None
            }
        }
    }
}

/// In one piece, and readable by its owner alone.
fn write(path: &Path, url: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{url}")?;
    file.persist(path)?;
    Ok(())
}

impl Drop for Notice {
    fn drop(&mut self) {
        // Whoever finds it later finds out that it is stale.
        drop(std::fs::remove_file(&self.0));
    }
}
