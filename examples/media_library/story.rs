//! The program as it introduces itself: six files, three sources of which none answers, and then one recovers.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use redrive::secs;
use tokio::sync::oneshot;

use super::{Mood, NAMES, Program, Sources, Status};
use crate::stage::interrupted;
use crate::{Pace, Play, Stage};

/// Files that somebody collects.
const FILES: [&str; 6] = [
    "The.Matrix.1999.1080p.BluRay.x264.mkv",
    "Breaking.Bad.S01E02.720p.HDTV.mkv",
    "臥虎藏龍.2000.2160p.WEB-DL.mkv",
    "Metropolis (1927).mp4",
    "Holiday in the Garden.mov",
    "notes.txt",
];

/// Runs the program: to its end at a quick pace, at the real one until somebody interrupts it.
///
/// # Errors
///
/// What went wrong, or did not end as it should.
pub async fn tell(stage: Stage) -> Result<()> {
    let sources = Sources::start().await?;
    let program = Program::open(&stage, &sources).await?;
    println!("dashboard: http://{}", program.dashboard);
    println!("library:   http://{}/files", program.address);
    println!("sources:   http://{}", sources.address);
    if stage.play == Play::Idle {
        return program.run(interrupted()).await;
    }
    let library = program.library.clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(program.run(async { drop(stopped.await) }));
    let mut changes = library.changes();
    let printed = tokio::spawn(async move {
        let mut before = BTreeMap::new();
        while changes.changed().await.is_ok() {
            let now = changes.borrow_and_update().clone();
            now.iter().filter(|(file, status)| before.get(*file) != Some(*status)).for_each(print);
            before = now;
        }
    });

    let [tmdb, douban, wikipedia] = NAMES;
    sources.set(tmdb, Mood::Limited);
    sources.set(douban, Mood::Down);
    sources.set(wikipedia, Mood::Broken);
    for file in FILES {
        library.add(file).await?;
    }
    tokio::time::sleep(stage.pace.of(secs(5))).await;
    println!("two of the sources recover");
    sources.set(tmdb, Mood::Up);
    sources.set(douban, Mood::Up);

    if stage.pace == Pace::REAL {
        interrupted().await;
    } else {
        let mut changes = library.changes();
        let is_settled = |status: &Status| !matches!(status, Status::Retrying { .. });
        let files = changes.wait_for(|files| files.values().all(is_settled)).await?.clone();
        let ready = files.values().filter(|status| matches!(status, Status::Ready(_))).count();
        // The third source stays broken, so nobody knows whether it has the fourth and the fifth.
        ensure!(ready == 3, "three of the titles are found, not {ready}");
        let dead = library.engine().groups(10).await?.iter().map(|group| group.count).sum::<u64>();
        ensure!(dead == 2, "two need a person after four retries, not {dead}");
    }
    drop(stop);
    running.await??;
    printed.abort();
    Ok(())
}

fn print((file, status): (&String, &Status)) {
    match status {
        Status::Ready(found) => println!("  {file}: {} ({}), by {}", found.title, found.year, found.source),
        Status::Retrying { error } => println!("  {file}: asked again soon; {error}"),
        Status::NeedsPerson { error } => println!("  {file}: needs a person; {error}"),
        Status::Cancelled => println!("  {file}: taken back"),
    }
}
