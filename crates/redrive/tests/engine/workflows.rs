//! Executions of workflows: their nodes come after each other, they fail and go on, and they are started anew.

use std::collections::BTreeMap;

use redrive::{
    Attempt, Builder, Command, Engine, ErrorKind, ExecutionDetail, Failure, Filter, JobId, Json, NewJob,
    Output, Page, Policy, Queue, Reason, Retention, State, StateName, Workflow, days, mins, secs,
};
use serde_json::json;

use super::kit::{Diary, Task, detail, paused, task};

/// What each node does, by its name, at each of its attempts in order; it succeeds when nothing is left.
type Script = Diary<(String, &'static str)>;

/// An engine whose tasks fail as often as the script has a line for them, and leave their names behind.
fn scripted(builder: Builder, script: &Script, diary: &Diary<String>) -> Engine {
    let (script, diary) = (script.clone(), diary.clone());
    let seen: Diary<String> = Diary::new();
    builder
        .handle(move |attempt: Attempt<Task>| {
            let (script, diary, seen) = (script.clone(), diary.clone(), seen.clone());
            async move {
                let name = attempt.payload.name.clone();
                diary.note(name.clone());
                let before = seen.entries().iter().filter(|other| **other == name).count();
                seen.note(name.clone());
                match script.entries().iter().filter(|(node, _)| *node == name).nth(before) {
                    Some((_, "fatal")) => Err(Failure::permanent("no such account").status(404)),
                    Some((_, why)) => Err(Failure::retry(why).status(503)),
                    None => Ok(Output(json!({ "did": name }))),
                }
            }
        })
        .build()
        .unwrap()
}

fn script(lines: &[(&str, &'static str)]) -> Script {
    let script = Diary::new();
    lines.iter().for_each(|(node, what)| script.note(((*node).to_owned(), *what)));
    script
}

fn step(name: &str) -> NewJob {
    NewJob::from(task(name)).policy(Policy::fixed(secs(10)).retries(1))
}

/// `b` and `c` come after `a`, and `d` after both.
fn diamond() -> Workflow {
    let workflow = Workflow::new().node("a", step("a")).node("b", step("b")).after(["a"]);
    workflow.node("c", step("c")).after(["a"]).node("d", step("d")).after(["b", "c"])
}

async fn known(engine: &Engine, id: JobId) -> ExecutionDetail {
    engine.execution(id).await.unwrap().expect("the execution is there")
}

fn states(known: &ExecutionDetail) -> Vec<Option<StateName>> {
    known.nodes.iter().map(|node| node.as_ref().map(|job| job.state.name())).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_run_after_those_they_come_after_and_their_outputs_are_kept() {
    let (builder, _) = paused();
    let diary = Diary::new();
    let engine = scripted(builder, &script(&[("b", "busy")]), &diary);
    let id = engine.start(diamond().input(json!({ "order": 17 }))).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(diary.entries(), ["a", "b", "c", "b", "d"]);
    let ExecutionDetail { detail, execution, .. } = known(&engine, id).await;
    assert_eq!(detail.job.state.name(), StateName::Succeeded);
    assert_eq!(execution.input.as_str(), r#"{"order":17}"#);
    let output: BTreeMap<String, serde_json::Value> = detail.output.unwrap().decode().unwrap();
    assert_eq!(output.keys().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!(output["d"], json!({ "did": "d" }));
}

#[tokio::test(start_paused = true)]
async fn a_node_is_given_the_input_and_what_those_before_it_left_behind() {
    let (builder, _) = paused();
    let diary: Diary<String> = Diary::new();
    let noted = diary.clone();
    let engine = builder
        .handle(move |attempt: Attempt<Task>| {
            let noted = noted.clone();
            async move {
                let inputs = attempt.inputs().await?;
                noted.note(serde_json::to_string(&inputs).unwrap());
                Ok::<_, Failure>(Output(attempt.payload.name))
            }
        })
        .build()
        .unwrap();
    engine.start(diamond().input(7)).await.unwrap();
    engine.enqueue(task("alone").clone()).await.unwrap();
    engine.drain().await.unwrap();
    let noted = diary.entries();
    assert_eq!(noted.first().unwrap(), r#"{"input":7,"outputs":{}}"#);
    assert_eq!(noted.last().unwrap(), r#"{"input":7,"outputs":{"b":"b","c":"c"}}"#);
    let alone = engine.list(&Filter::state(StateName::Dead), Page::default()).await.unwrap().jobs;
    assert_eq!(alone.len(), 1, "what is no node has no inputs");
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_ends_the_execution_and_retrying_it_goes_on_where_it_stopped() {
    let (builder, _) = paused();
    let diary = Diary::new();
    let engine = scripted(builder, &script(&[("b", "fatal")]), &diary);
    let id = engine.start(diamond()).await.unwrap();
    let other = engine.start(Workflow::new().node("x", step("x"))).await.unwrap();
    engine.drain().await.unwrap();
    let failed = known(&engine, id).await;
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| failed.nodes[at].clone().unwrap());
    assert_eq!(failed.detail.job.state.name(), StateName::Dead);
    let why = failed.detail.attempts.last().unwrap().failure.clone().unwrap();
    assert_eq!(why.message, r#"node "b" is dead: no such account"#);
    assert_eq!(
        (a.state.name(), b.state.name(), c.state.name()),
        (StateName::Succeeded, StateName::Dead, StateName::Succeeded)
    );
    assert!(matches!(d.state, State::Waiting { reason: Reason::Dependency, .. }));
    assert_eq!(engine.retry_node(id, "b").await.unwrap(), b.id);
    engine.drain().await.unwrap();
    assert_eq!(known(&engine, id).await.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(diary.entries(), ["a", "x", "b", "c", "b", "d"]);
    assert_eq!(known(&engine, other).await.detail.job.state.name(), StateName::Succeeded);
    let unknown = engine.retry_node(id, "e").await.unwrap_err();
    assert_eq!((unknown.kind(), unknown.hint()), (ErrorKind::NotFound, Some("its nodes are a, b, c, d")));
}

#[tokio::test(start_paused = true)]
async fn redriving_the_job_of_a_dead_node_brings_its_execution_back_too() {
    let (builder, _) = paused();
    let diary = Diary::new();
    let engine = scripted(builder, &script(&[("b", "fatal"), ("c", "fatal")]), &diary);
    let id = engine.start(diamond()).await.unwrap();
    engine.drain().await.unwrap();
    let nodes = known(&engine, id).await.nodes;
    engine.redrive(nodes[1].as_ref().unwrap().id).await.unwrap();
    engine.drain_due().await.unwrap();
    assert_eq!(
        known(&engine, id).await.detail.job.state.name(),
        StateName::Dead,
        "the other one is still dead"
    );
    assert_eq!(engine.apply(Command::Redrive, &Filter::state(StateName::Dead)).await.unwrap(), 1);
    engine.drain().await.unwrap();
    assert_eq!(known(&engine, id).await.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(diary.entries(), ["a", "b", "c", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_execution_is_started_anew_when_its_policy_says_and_remembers_every_error() {
    let (builder, clock) = paused();
    let diary = Diary::new();
    let retention = Retention { succeeded: days(90), cancelled: days(90), dead: None };
    let engine = scripted(builder.retention(retention), &script(&[("b", "fatal"), ("b", "fatal")]), &diary);
    let began = clock.now();
    let retry = Policy::schedule([days(7), days(14)]).retries(2);
    let first = engine.start(diamond().retry(retry).input("the order").label("team", "shop")).await.unwrap();
    engine.drain().await.unwrap();
    let old = known(&engine, first).await;
    let second = old.retried_by.expect("it was started anew");
    let middle = known(&engine, second).await;
    let third = middle.retried_by.expect("it was started anew again");
    let last = known(&engine, third).await;
    assert_eq!(last.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(
        [&old, &middle, &last].map(|known| known.detail.job.created_at),
        [began, began + days(7), began + days(21)]
    );
    assert_eq!((middle.execution.retry_of, last.execution.retry_of), (Some(first), Some(second)));
    assert_eq!((last.execution.retry, last.execution.input.as_str()), (2, r#""the order""#));
    assert_eq!(last.detail.job.extras().labels["team"], "shop");
    let errors: Vec<u32> = last.detail.attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(errors, [1, 2], "the errors of those before it");
    assert_eq!(last.retried_by, None);
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_goes_on_failing_is_given_up_with_its_last_error() {
    let (builder, clock) = paused();
    let lines = [("a", "fatal"), ("a", "fatal"), ("a", "fatal"), ("a", "fatal")];
    let engine = scripted(builder, &script(&lines), &Diary::new());
    let began = clock.now();
    let workflow = Workflow::new().node("a", step("a")).retry(Policy::fixed(mins(5)).retries(2));
    engine.start(workflow).await.unwrap();
    engine.drain().await.unwrap();
    let executions = Filter { kind: Some("execution".into()), ..Filter::default() };
    let jobs = engine.list(&executions, Page::default()).await.unwrap().jobs;
    assert_eq!(jobs.len(), 3);
    let last = detail(&engine, jobs[0].id).await;
    assert_eq!(last.job.state.name(), StateName::Dead);
    assert_eq!((last.job.created_at, last.job.ledger.failures), (began + mins(10), 3));
    assert_eq!(last.attempts.len(), 3, "the last error is kept too");
}

#[tokio::test(start_paused = true)]
async fn an_execution_without_a_policy_is_started_anew_by_hand_and_only_once() {
    let (builder, _) = paused();
    let engine = scripted(builder, &script(&[("b", "fatal")]), &Diary::new());
    let id = engine.start(diamond().input(1)).await.unwrap();
    assert_eq!(engine.retry_execution(id).await.unwrap_err().kind(), ErrorKind::Conflict);
    engine.drain().await.unwrap();
    let new = engine.retry_execution(id).await.unwrap();
    assert_eq!(engine.retry_execution(id).await.unwrap(), new);
    engine.drain().await.unwrap();
    let (old, new) = (known(&engine, id).await, known(&engine, new).await);
    assert_eq!((old.retried_by, new.execution.retry_of), (Some(new.detail.job.id), Some(id)));
    assert_eq!(new.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(engine.retry_node(id, "b").await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_failed_execution_is_cancelled_when_it_is_started_anew() {
    let (builder, _) = paused();
    let engine = scripted(builder, &script(&[("b", "fatal")]), &Diary::new());
    let id = engine.start(diamond().retry(Policy::immediate().retries(1))).await.unwrap();
    engine.drain().await.unwrap();
    let old = known(&engine, id).await;
    let [done, dead, cancelled] = [StateName::Succeeded, StateName::Dead, StateName::Cancelled].map(Some);
    assert_eq!(states(&old), [done, dead, done, cancelled]);
    assert!(old.retried_by.is_some());
}

#[tokio::test(start_paused = true)]
async fn cancel_and_delete_of_an_execution_go_down_to_its_nodes() {
    let (builder, _) = paused();
    let engine = scripted(builder, &script(&[("a", "busy")]), &Diary::new());
    let id = engine.start(diamond()).await.unwrap();
    let other = engine.start(diamond()).await.unwrap();
    engine.drain_due().await.unwrap();
    assert_eq!(engine.delete(id).await.unwrap_err().kind(), ErrorKind::Conflict);
    engine.cancel(id).await.unwrap();
    assert_eq!(states(&known(&engine, id).await), [Some(StateName::Cancelled); 4]);
    engine.drain().await.unwrap();
    assert_eq!(states(&known(&engine, other).await), [Some(StateName::Succeeded); 4]);
    engine.delete(id).await.unwrap();
    let left = engine.list(&Filter::default(), Page::default()).await.unwrap().jobs;
    assert_eq!(left.len(), 5, "all of the other one, and nothing of this");
    assert!(engine.execution(id).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_execution_that_is_redriven_goes_on_in_order() {
    let (builder, _) = paused();
    let diary = Diary::new();
    let engine = scripted(builder, &script(&[("a", "busy")]), &diary);
    let id = engine.start(diamond()).await.unwrap();
    engine.drain_due().await.unwrap();
    engine.cancel(id).await.unwrap();
    engine.redrive(id).await.unwrap();
    engine.drain().await.unwrap();
    assert_eq!(known(&engine, id).await.detail.job.state.name(), StateName::Succeeded);
    assert_eq!(diary.entries(), ["a", "a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_node_ends_its_execution_whatever_its_policy() {
    let (builder, _) = paused();
    let engine = scripted(builder, &script(&[("a", "busy")]), &Diary::new());
    let id = engine.start(diamond().retry(Policy::immediate().retries(3))).await.unwrap();
    engine.drain_due().await.unwrap();
    engine.cancel(known(&engine, id).await.nodes[0].as_ref().unwrap().id).await.unwrap();
    engine.drain().await.unwrap();
    let known = known(&engine, id).await;
    assert_eq!((known.detail.job.state.name(), known.retried_by), (StateName::Dead, None));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_no_longer_there_fails_its_execution_and_no_other() {
    let (builder, _) = paused();
    let engine = scripted(builder, &script(&[("b", "fatal")]), &Diary::new());
    let id = engine.start(diamond()).await.unwrap();
    engine.drain().await.unwrap();
    let gone = known(&engine, id).await.nodes;
    for at in [1, 3] {
        let node = gone[at].as_ref().unwrap().id;
        drop(engine.cancel(node).await);
        engine.delete(node).await.unwrap();
    }
    let other = engine.start(diamond()).await.unwrap();
    engine.redrive(id).await.unwrap();
    engine.drain().await.unwrap();
    let failed = known(&engine, id).await;
    let why = failed.detail.attempts.last().unwrap().failure.clone().unwrap();
    assert_eq!(why.message, format!("Node execution not found: {}", gone[1].as_ref().unwrap().id));
    assert_eq!(failed.nodes[1], None);
    assert_eq!(known(&engine, other).await.detail.job.state.name(), StateName::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn nodes_are_kept_as_long_as_their_execution_needs_them() {
    let (builder, _) = paused();
    let retention = Retention { succeeded: mins(1), cancelled: mins(1), dead: None };
    let slow = step("b").policy(Policy::fixed(days(14)).retries(1));
    let engine = scripted(builder.retention(retention), &script(&[("b", "busy")]), &Diary::new());
    let id = engine.start(Workflow::new().node("a", step("a")).node("b", slow).after(["a"])).await.unwrap();
    engine.drain().await.unwrap();
    let output: BTreeMap<String, Json> = known(&engine, id).await.detail.output.unwrap().decode().unwrap();
    assert_eq!(output.len(), 2, "the first was done fourteen days before the second");
}

#[tokio::test(start_paused = true)]
async fn a_graph_that_cannot_be_is_refused_and_nothing_is_created() {
    let (builder, _) = paused();
    let fifo = Queue::new("line").fifo();
    let engine = scripted(builder.queue(fifo), &script(&[]), &Diary::new());
    let big = "x".repeat(redrive::PAYLOAD_BYTES_MAX);
    let node = |job: NewJob| Workflow::new().node("a", step("a")).node("b", job).after(["a"]);
    let refused = [
        (Workflow::new(), "nodes has 0 entries"),
        (diamond().after(["d"]), "nodes[3].after[2] is the node itself"),
        (diamond().node("a", step("x")), "nodes[4].nodeId is \"a\""),
        (diamond().node("e", step("x")).after(["f"]), "there is no such node"),
        (
            Workflow::new().node("a", step("a")).after(["b"]).node("b", step("b")).after(["a"]),
            "closes a circle",
        ),
        (node(step(&big)), "nodes[1] (\"b\"): its payload has"),
        (node(step("x").key("k")), "nodes[1] (\"b\") has a key"),
        (node(step("x").after(secs(1))), "has a delay"),
        (node(step("x").queue("line")), "nodes[1] (\"b\"): leave out its key and its ordering key"),
        (node(step("x").queue("nowhere")), "nodes[1] (\"b\"): add .queue"),
        (node(NewJob::of_kind("unknown", Json::parse("1").unwrap())), "knows jobs of the kind \"unknown\""),
        (
            node(step("x").label("note", "y".repeat(300))),
            "nodes[1] (\"b\"): its labels are too many or too long",
        ),
    ];
    for (workflow, says) in refused {
        let error = engine.start(workflow).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.hint().unwrap_or_default().contains(says), "{says}\n{error}");
    }
    assert!(engine.list(&Filter::default(), Page::default()).await.unwrap().jobs.is_empty());
}
