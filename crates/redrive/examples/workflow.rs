//! An order in four steps: the charge first, then parcel and invoice side by side, then a word of thanks. The invoice
//! fails for good, is corrected by a person, and the execution goes on where it stopped.
#![expect(clippy::print_stdout, reason = "an example is there to be read as it runs")]

use std::sync::atomic::{AtomicBool, Ordering};

use redrive::{Attempt, Engine, Failure, MemoryStore, Output, Payload, Policy, StateName, Workflow, secs};
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Serialize, Deserialize)]
struct Step {
    name: String,
}

impl Payload for Step {
    const KIND: &'static str = "step";
}

fn step(name: &str) -> Step {
    Step { name: name.into() }
}

/// Whether somebody has entered the address that the invoice needs.
static ADDRESS_KNOWN: AtomicBool = AtomicBool::new(false);

async fn run(attempt: Attempt<Step>) -> Result<Output<serde_json::Value>, Failure> {
    let inputs = attempt.inputs().await?;
    let name = &attempt.payload.name;
    if name == "invoice" && !ADDRESS_KNOWN.load(Ordering::Acquire) {
        return Err(Failure::permanent("the customer has no address"));
    }
    println!("{name:<8} after {:?}", inputs.outputs.keys().collect::<Vec<_>>());
    Ok(Output(json!({ "did": name, "order": inputs.input })))
}

#[tokio::main]
async fn main() -> redrive::Result<()> {
    let engine = Engine::builder(MemoryStore::new()).handle(run).build()?;
    let workflow = Workflow::new()
        .node("charge", step("charge"))
        .node("parcel", redrive::NewJob::from(step("parcel")).policy(Policy::fixed(secs(60)).retries(5)))
        .after(["charge"])
        .node("invoice", step("invoice"))
        .after(["charge"])
        .node("thank", step("thank"))
        .after(["parcel", "invoice"])
        .input(17);
    let id = engine.start(workflow).await?;
    engine.drain().await?;
    let stopped = engine.execution(id).await?.expect("it is kept");
    assert_eq!(stopped.detail.job.state.name(), StateName::Dead);
    let why = stopped.detail.attempts.last().and_then(|attempt| attempt.failure.as_ref());
    println!("stopped: {}", why.map_or("", |failure| failure.message.as_str()));

    ADDRESS_KNOWN.store(true, Ordering::Release);
    engine.retry_node(id, "invoice").await?;
    engine.drain().await?;
    let ended = engine.execution(id).await?.expect("it is kept");
    assert_eq!(ended.detail.job.state.name(), StateName::Succeeded);
    let charged = ended.nodes[0].as_ref().expect("it is kept");
    assert_eq!(charged.ledger.attempt, 1, "what was done is not done again");
    println!("done: {}", ended.detail.output.expect("its nodes left something").as_str());
    Ok(())
}
