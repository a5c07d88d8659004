//! A graph of a thousand nodes on a fleet whose instances are killed.

use std::collections::BTreeMap;
use std::time::Instant;

use redrive::{
    Engine, Execution, JobId, NewJob, Policy, PostgresStore, Rng, StateName, Workflow, millis, secs,
};

use crate::books::{nothing, number, until_all_done};
use crate::child::{Work, queue};
use crate::fleet::{INSTANCES, Instance, victim};
use crate::times;

/// Nodes of the graph.
const NODES: u64 = 1_000;
/// Nodes that may begin at the same time.
const WIDTH: u64 = 50;

/// `REDRIVE_GRAPH_KILLS` processes are killed while an execution is under way. One that comes to its end before is
/// followed by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_of_a_graph_is_done_once_and_in_order_whoever_is_killed() {
    let (kills, began) = (times("REDRIVE_GRAPH_KILLS", 20), Instant::now());
    let database = redrive_testbed::database().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let client = redrive_testbed::connect(database.url()).await.unwrap();
    let ledger = "CREATE TABLE ledger (what text, job text, attempt integer, who text, at bigint DEFAULT redrive.now_ms(), \
                  n bigint GENERATED ALWAYS AS IDENTITY)";
    client.batch_execute(ledger).await.unwrap();
    let producer = Engine::builder(store).queue(queue()).produce::<Work>().build().unwrap();
    let mut rng = Rng::seeded(11);
    let start = |n: u64| Instance::start(database.url(), format!("g{n}"));
    let mut fleet: Vec<Instance> = (0..INSTANCES as u64).map(start).collect();
    let (mut killed, mut graphs) = (0, 0);
    while killed < kills {
        let id = producer.start(graph(&mut rng)).await.unwrap();
        while killed < kills && is_under_way(&producer, id).await {
            tokio::time::sleep(millis(50 + rng.up_to(150))).await;
            fleet.remove(victim(&fleet, &mut rng)).kill();
            fleet.push(start(INSTANCES as u64 + killed));
            killed += 1;
        }
        until_all_done(database.url(), secs(120)).await;
        let known = producer.execution(id).await.unwrap().unwrap();
        assert_eq!(known.detail.job.state.name(), StateName::Succeeded);
        let done = known.nodes.iter().flatten().filter(|node| node.state.name() == StateName::Succeeded);
        assert_eq!(done.count() as u64, NODES, "lost");
        in_order(&client, &known.execution, id).await;
        graphs += 1;
    }
    let accepted = "SELECT count(*) FROM (SELECT 1 FROM ledger WHERE what = 'accepted' GROUP BY job HAVING count(*) > 1) AS t";
    nothing(&client, "completed twice", accepted).await;
    nothing(&client, "edges that are left", "SELECT count(*) FROM redrive.edges").await;
    let again = number(&client, "SELECT count(*) FROM ledger WHERE what = 'start' AND attempt > 1").await;
    println!(
        "graph: {graphs} of {NODES} nodes, kills={killed} run again={again} lost=0 double=0 in {:?}",
        began.elapsed()
    );
}

async fn is_under_way(engine: &Engine, id: JobId) -> bool {
    !engine.get(id).await.unwrap().unwrap().job.state.is_final()
}

fn graph(rng: &mut Rng) -> Workflow {
    let mut policy = Policy::fixed(millis(5)).no_jitter();
    // The killing is done from outside here, so no job is to be blamed for it.
    policy.max_crashes = 100_000;
    let mut workflow = Workflow::new().retry(Policy { max_crashes: 100_000, ..policy.clone().retries(0) });
    for number in 0..NODES {
        let work = Work { number, millis: 20 + rng.up_to(40) };
        workflow = workflow.node(format!("n{number}"), NewJob::from(work).policy(policy.clone()));
        // Each comes after one to three of the layer before it.
        let layer = number / WIDTH;
        if layer > 0 {
            let one = |rng: &mut Rng| format!("n{}", (layer - 1) * WIDTH + rng.up_to(WIDTH - 1));
            let before: Vec<String> = (0..=rng.up_to(2)).map(|_| one(rng)).collect();
            workflow = workflow.after(before);
        }
    }
    workflow
}

/// No node began before the last completed run of each that it comes after had ended.
async fn in_order(client: &redrive_testbed::tokio_postgres::Client, execution: &Execution, id: JobId) {
    let times = |what: &str, pick: &str| {
        format!("SELECT job, {pick}(n) FROM ledger WHERE what = '{what}' GROUP BY job")
    };
    let mut read = BTreeMap::new();
    for (what, pick) in [("start", "min"), ("end", "min")] {
        let rows = client.query(&times(what, pick), &[]).await.unwrap();
        let all: BTreeMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        read.insert(what, all);
    }
    let ids: Vec<String> = execution.node_jobs(id).iter().map(ToString::to_string).collect();
    for (node, job) in execution.nodes.iter().zip(&ids) {
        for before in &node.after {
            let before = &ids[execution.place_of(before).unwrap()];
            assert!(read["end"][before] < read["start"][job], "{} began too early", node.node_id);
        }
    }
}
