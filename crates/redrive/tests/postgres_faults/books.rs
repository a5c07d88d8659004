//! What must hold when the dust has settled.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redrive::JobId;
use redrive_testbed::tokio_postgres::Client;

/// Returns when nothing is left to do.
pub(crate) async fn until_all_done(url: &str, patience: Duration) {
    let client = redrive_testbed::connect(url).await.unwrap();
    let since = Instant::now();
    loop {
        let left = number(&client, "SELECT count(*) FROM redrive.live").await;
        if left == 0 {
            return;
        }
        assert!(since.elapsed() < patience, "{left} jobs are still there after {patience:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Every acknowledged job succeeded, once; and no call made two jobs.
pub(crate) async fn balance(url: &str, acknowledged: &BTreeSet<JobId>) {
    let client = redrive_testbed::connect(url).await.unwrap();
    let rows = client.query("SELECT id::text FROM redrive.done WHERE NOT cancelled", &[]).await.unwrap();
    let done: BTreeSet<JobId> = rows.iter().map(|row| row.get::<_, &str>(0).parse().unwrap()).collect();
    assert_eq!(acknowledged.difference(&done).count(), 0, "acknowledged and lost");
    assert_eq!(done.len(), rows.len(), "completed twice");
    nothing(
        &client,
        "jobs in more than one place",
        "SELECT count(*) FROM redrive.live JOIN redrive.done USING (seq)",
    )
    .await;
    nothing(&client, "jobs that are dead", "SELECT count(*) FROM redrive.dead").await;
    let twice =
        "SELECT count(*) FROM (SELECT 1 FROM redrive.jobs GROUP BY payload HAVING count(*) > 1) AS twice";
    nothing(&client, "enqueued twice", twice).await;
    let orphans = "SELECT count(*) FROM redrive.claims WHERE holder NOT IN (SELECT id FROM redrive.holders)";
    nothing(&client, "claims without a holder", orphans).await;
}

pub(crate) async fn nothing(client: &Client, what: &str, sql: &str) {
    assert_eq!(number(client, sql).await, 0, "{what}");
}

pub(crate) async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}
