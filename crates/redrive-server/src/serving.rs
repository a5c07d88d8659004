//! `redrive serve` as a process: reads the configuration, says what is wrong with it, and serves until it is told to stop.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use redrive_server::config::{self, ServeOptions, Sources};
use redrive_server::door::{EXIT_CONFIG, NotOpened};
use redrive_server::serve::Server;
use redrive_server::telemetry::{self, Metrics};
use tokio::signal::unix::{SignalKind, signal};

use crate::out;

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
        Err(error) if error.is::<NotOpened>() => {
            out::complain(&error);
            ExitCode::from(EXIT_CONFIG)
        }
        served => out::exit_code(served),
    }
}

async fn serve(config: config::Config, demo: bool) -> Result<()> {
    telemetry::log(&config.log, config.log_format)?;
    let metrics = Metrics::install().context("cannot count")?;
    let store = config.store.shown();
    let server = Server::open(config, Some(metrics)).await?;
    let address = server.address()?;
    tracing::info!(store, url = %format_args!("http://{address}"), "Serving");
    let _demo = if demo { Some(redrive_server::demo::start(&server).await?) } else { None };
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
