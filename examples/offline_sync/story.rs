//! The program as it introduces itself: the connection is lost, work goes on, and everything arrives.

#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use anyhow::{Result, ensure};
use redrive::{OnRetry, secs};
use tokio::sync::oneshot;

use super::{Cloud, Connection, CreateNote, DeleteNote, Program, UpdateNote};
use crate::stage::interrupted;
use crate::{Pace, Play, Stage};

/// Runs the program: to its end at a quick pace, at the real one until somebody interrupts it.
///
/// # Errors
///
/// What went wrong, or did not end as it should.
pub async fn tell(stage: Stage) -> Result<()> {
    let cloud = Cloud::start().await?;
    let program = Program::open(&stage, cloud.address, OnRetry::Block).await?;
    println!("dashboard: http://{}", program.dashboard);
    if stage.play == Play::Idle {
        return program.run(interrupted()).await;
    }
    let (sync, dashboard) = (program.sync.clone(), program.dashboard);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(program.run(async { drop(stopped.await) }));
    let (mut connection, mut told) = (sync.connection(), sync.told());

    cloud.refuse("cursed");
    cloud.go_away().await;
    connection.wait_for(|connection| *connection == Connection::Down).await?;
    println!("the connection is lost");
    sync.add(CreateNote::of("shopping")).await?;
    sync.add(UpdateNote::of("shopping")).await?;
    sync.add(CreateNote::of("cursed")).await?;
    sync.add(DeleteNote::of("shopping")).await?;
    for operation in sync.operations().await? {
        println!("  {} is {}", operation.operation_type, operation.status);
        ensure!(operation.status == "pending" && operation.retry_count == 0, "nothing is tried in vain");
    }
    tokio::time::sleep(stage.pace.of(secs(5))).await;

    println!("the connection is back");
    cloud.come_back().await?;
    let told = told.wait_for(|told| told.len() == 4).await?.clone();
    for told in &told {
        println!("  {} http://{dashboard}{}", told.message, told.log);
    }
    ensure!(
        cloud.operations() == ["create_note shopping", "update_note shopping", "delete_note shopping"],
        "what the far side took came in order: {:?}",
        cloud.operations()
    );
    if stage.pace == Pace::REAL {
        interrupted().await;
    }
    drop(stop);
    running.await?
}
