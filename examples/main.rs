//! Runs one of the programs: `cargo run -p redrive-examples -- media_library`.

#![expect(clippy::print_stderr, reason = "whoever calls it wrongly is told how to")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use redrive_examples::{Pace, Play, Stage, article_feed, media_library, offline_sync};

const USAGE: &str =
    "usage: redrive-examples media_library|offline_sync|article_feed [--quick] [--idle] [--listen ADDRESS] [--folder FOLDER]

--quick   a hundred times as fast or more, to its end; otherwise until it is interrupted
--idle    does nothing until it is asked over HTTP
--listen  where the dashboard is; 127.0.0.1:7373 if not given, any free port with --quick
--folder  where the files are kept; a folder that is gone afterwards if not given";

#[tokio::main]
async fn main() -> ExitCode {
    match run(std::env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let Some(program) = arguments.next() else { bail!("{USAGE}") };
    let (mut pace, mut play, mut listen, mut folder) = (Pace::REAL, Play::Story, None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--quick" if program == "article_feed" => pace = article_feed::QUICK,
            "--quick" => pace = Pace::QUICK,
            "--idle" => play = Play::Idle,
            "--listen" => listen = Some(value()?),
            "--folder" => folder = Some(PathBuf::from(value()?)),
            _ => bail!("{argument} is not known\n{USAGE}"),
        }
    }
    // Kept until the end.
    let own = tempfile::tempdir()?;
    let usual = if pace == Pace::REAL { "127.0.0.1:7373" } else { "127.0.0.1:0" };
    let listen = listen.as_deref().unwrap_or(usual);
    let listen = listen.parse().with_context(|| format!("{listen:?} is no address"))?;
    let stage = Stage { folder: folder.unwrap_or_else(|| own.path().to_owned()), listen, pace, play };
    match program.as_str() {
        "article_feed" => article_feed::tell(stage).await,
        "offline_sync" => offline_sync::tell(stage).await,
        "media_library" => media_library::tell(stage).await,
        _ => bail!("there is no program {program}\n{USAGE}"),
    }
}
