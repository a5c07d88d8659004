//! The limit on PostgreSQL: loops written by hand on the same tables and functions, with prepared statements on two
//! connections, one of which claims while the other settles. No dispatch, no timers, no leases to renew.

use anyhow::{Result, ensure};
use redrive::{Clock, DEFAULT_QUEUE, Failure, JobId, Payload as _, PostgresStore, Rng};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

use super::limit::{Maker, Row, checksum};
use super::measures::{CALLERS, Callers, per_second};
use super::workload::{BULK, FAILURE, Parcel, policy};
use crate::stopwatch;

const PUT: &str = "SELECT redrive.put($1, array_fill($9::int, ARRAY[cardinality($1::uuid[])]), \
    array_fill($10::int, ARRAY[cardinality($1::uuid[])]), $2, $3, $4, array_fill(0::smallint, ARRAY[cardinality($1::uuid[])]), $5, $6, \
    $7, $8::text[]::jsonb[])";
const CLAIM: &str = "SELECT answer FROM redrive.claim($1, $2, $3, ARRAY[$4], ARRAY[$5::int], ARRAY[false], false, $6, NULL, NULL, NULL)";
const CLAIMED: &str =
    "SELECT seq, attempt, id, kind, created_at, checksum, payload FROM redrive.claimed(ARRAY[$1::uuid])";
/// One claim, its successes at the first attempt, its failures, which all say the same, and its later successes.
const SETTLE: &str = "SELECT redrive.settle('{}', ARRAY[$1::uuid], ARRAY[$2::int], $3, array_fill(0, ARRAY[cardinality($3::bigint[])]), $4, $4, \
    $29, array_fill($23::int, ARRAY[cardinality($3)]), array_fill(0, ARRAY[cardinality($3)]), $5, $6, $7, $8, $9, $9, $9, $9, $10, $7, $11, \
    $12, $13, $14, $15, $16, $16, $13, $17, $17, $17, $17, $17, $18, $19, $19, $19, $19, \
    $5, $8, $7, $7, $7, array_fill(1, ARRAY[cardinality($5::bigint[])]), ARRAY['failed'], ARRAY[$20::text], ARRAY[$21::text], \
    ARRAY[$22::text], '{}', '{}', '{}', 10, '{}', '{}', '{}', \
    ARRAY[$23::int], ARRAY[$24::text]::jsonb[], $16, $14, $25, $26, $27, $28, \
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";

/// Two connections to a fresh database, with a queue, a policy and a holder.
pub(crate) struct ByHand {
    claiming: Client,
    settling: Client,
    claim: Statement,
    claimed: Statement,
    settle: Statement,
    put: Statement,
    queue: i32,
    policy: i32,
    holder: Uuid,
}

/// What was claimed.
struct Batch {
    id: Uuid,
    jobs: Vec<(i64, i32, Uuid)>,
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl ByHand {
    pub(crate) async fn open(url: &str) -> Result<ByHand> {
        // Makes the schema.
        drop(PostgresStore::connect(url).await?);
        let (claiming, settling) = (connect(url).await?, connect(url).await?);
        let queue: i32 = claiming.query_one("SELECT redrive.queue_id($1)", &[&DEFAULT_QUEUE]).await?.get(0);
        let body = serde_json::to_string(&policy())?;
        let policy: i32 = claiming.query_one("SELECT redrive.policy_id(1, $1)", &[&body]).await?.get(0);
        claiming.execute("SELECT redrive.know_band($1, 0::smallint)", &[&queue]).await?;
        let holder = Uuid::from_u128(Rng::from_os().next_u128());
        let register = "INSERT INTO redrive.holders (id, name, until) VALUES ($1, 'by hand', 9000000000000)";
        claiming.execute(register, &[&holder]).await?;
        Ok(ByHand {
            claim: claiming.prepare(CLAIM).await?,
            claimed: claiming.prepare(CLAIMED).await?,
            settle: settling.prepare(SETTLE).await?,
            put: settling.prepare(PUT).await?,
            claiming,
            settling,
            queue,
            policy,
            holder,
        })
    }

    /// `count` jobs, `together` in each transaction.
    pub(crate) async fn enqueue(&self, count: u64, together: u64) -> Result<()> {
        let mut maker = Maker::new();
        let mut next = 0;
        while next < count {
            let end = (next + together).min(count);
            let rows: Vec<Row> =
                (next..end).map(|number| maker.row(&Parcel::new(number))).collect::<Result<_>>()?;
            self.put(&rows).await?;
            next = end;
        }
        Ok(())
    }

    async fn put(&self, rows: &[Row]) -> Result<()> {
        let ids: Vec<Uuid> = rows.iter().map(|row| Ok(row.id.parse()?)).collect::<Result<_>>()?;
        let created: Vec<i64> = rows.iter().map(|row| row.created_at).collect();
        let checksums: Vec<i64> = rows.iter().map(|row| i64::from(row.checksum)).collect();
        let kinds = vec![Parcel::KIND; rows.len()];
        let payloads: Vec<&str> = rows.iter().map(|row| row.payload.as_str()).collect();
        let tally = vec![format!("{{\"enqueued\": {}}}", rows.len())];
        self.settling
            .execute(
                &self.put,
                &[
                    &ids,
                    &created,
                    &created,
                    &checksums,
                    &kinds,
                    &payloads,
                    &vec![self.queue],
                    &tally,
                    &self.queue,
                    &self.policy,
                ],
            )
            .await?;
        Ok(())
    }

    /// Group commit: what has collected while the last transaction was on its way goes together.
    async fn serve(&self, incoming: &mut mpsc::UnboundedReceiver<(Row, oneshot::Sender<()>)>) -> Result<()> {
        let mut together = Vec::new();
        while incoming.recv_many(&mut together, 1_000).await > 0 {
            let (rows, waiting): (Vec<Row>, Vec<_>) = together.drain(..).unzip();
            self.put(&rows).await?;
            for answer in waiting {
                ensure!(answer.send(()).is_ok(), "a caller went away without its answer");
            }
        }
        Ok(())
    }

    /// Runs everything that is due, `batch` at a time, each job failing `failures` times first; says how many attempts
    /// that took.
    pub(crate) async fn drain(&self, batch: usize, failures: u32) -> Result<u64> {
        let failures = i32::try_from(failures)?;
        let (clock, mut rng) = (Clock::system(), Rng::from_os());
        let mut attempts = 0;
        let mut held = self.take(batch, &clock, &mut rng).await?;
        while !held.jobs.is_empty() {
            attempts += held.jobs.len() as u64;
            let (next, settled) = tokio::join!(
                self.take(batch, &clock, &mut rng),
                self.settle(&held, failures, clock.now().as_millis())
            );
            settled?;
            held = next?;
            if held.jobs.is_empty() {
                // What has failed meanwhile is due again.
                held = self.take(batch, &clock, &mut rng).await?;
            }
        }
        Ok(attempts)
    }

    /// Takes what is due: verified and decoded.
    async fn take(&self, batch: usize, clock: &Clock, rng: &mut Rng) -> Result<Batch> {
        let (id, alone) = (Uuid::from_u128(rng.next_u128()), Uuid::from_u128(rng.next_u128()));
        let (limit, now) = (i32::try_from(batch)?, clock.now().as_millis());
        let arguments: [&(dyn ToSql + Sync); 6] = [&self.holder, &id, &alone, &DEFAULT_QUEUE, &limit, &now];
        let claimed: [&(dyn ToSql + Sync); 1] = [&id];
        let (_, rows) = tokio::try_join!(
            self.claiming.query_one(&self.claim, &arguments),
            self.claiming.query(&self.claimed, &claimed)
        )?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in &rows {
            let (seq, attempt, job): (i64, i32, Uuid) = (row.get(0), row.get(1), row.get(2));
            let payload: &str = row.get(6);
            let id: JobId = job.to_string().parse().map_err(anyhow::Error::msg)?;
            let intact = checksum(id, row.get(3), payload, row.get(4));
            ensure!(i64::from(intact) == row.get::<_, i64>(5), "row {seq} is not what was written");
            // The handler, which does nothing with it.
            std::hint::black_box(serde_json::from_str::<Parcel>(payload)?);
            jobs.push((seq, attempt, job));
        }
        Ok(Batch { id, jobs })
    }

    /// Writes what the attempts came to.
    async fn settle(&self, batch: &Batch, failures: i32, now: i64) -> Result<()> {
        let (plain, plain_ids): (Vec<i64>, Vec<Uuid>) =
            batch.jobs.iter().filter(|job| failures == 0 && job.1 == 0).map(|job| (job.0, job.2)).unzip();
        let failed: Vec<_> = batch.jobs.iter().filter(|job| job.1 < failures).collect();
        let recovered: Vec<_> = batch.jobs.iter().filter(|job| job.1 >= failures && job.1 > 0).collect();
        let (fails, recovers) = (failed.len(), recovered.len());
        let failure = serde_json::to_string(&Failure::retry(FAILURE))?;
        let fingerprint = Failure::retry(FAILURE).fingerprint(Parcel::KIND);
        let tally = format!(
            "{{\"succeeded\": {}, \"recovered\": {recovers}, \"failures\": {fails}, \"retries\": {fails}, \"retries_immediate\": {fails}}}",
            plain.len() + recovers,
        );
        let after: Vec<i32> = failed.iter().map(|job| job.1 + 1).collect();
        let fences: Vec<i32> = recovered.iter().map(|job| job.1).collect();
        self.settling
            .execute(
                &self.settle,
                &[
                    &batch.id,
                    &i32::try_from(batch.jobs.len())?,
                    &plain,
                    &vec![now; plain.len()],
                    &failed.iter().map(|job| job.0).collect::<Vec<_>>(),
                    &failed.iter().map(|job| job.1).collect::<Vec<_>>(),
                    &vec![now; fails],
                    &after,
                    &vec![0i32; fails],
                    &vec!["backoff"; fails],
                    &vec![None::<i64>; fails],
                    &recovered.iter().map(|job| job.0).collect::<Vec<_>>(),
                    &fences,
                    &recovered.iter().map(|job| job.2).collect::<Vec<_>>(),
                    &vec![self.queue; recovers],
                    &vec![now; recovers],
                    &vec![0i32; recovers],
                    &vec![false; recovers],
                    &vec![None::<String>; recovers],
                    &failure,
                    &fingerprint,
                    &"the handler's word",
                    &self.queue,
                    &tally,
                    &vec!["recovered"; recovers],
                    &vec![Parcel::KIND; recovers],
                    &vec![DEFAULT_QUEUE; recovers],
                    &recovered
                        .iter()
                        .map(|job| format!("finished at run {}, after {} failures", job.1 + 1, job.1))
                        .collect::<Vec<_>>(),
                    &plain_ids,
                ],
            )
            .await?;
        Ok(())
    }

    /// How many jobs have succeeded.
    pub(crate) async fn done(&self) -> Result<u64> {
        let count: i64 = self.settling.query_one("SELECT count(*) FROM redrive.done", &[]).await?.get(0);
        Ok(count.unsigned_abs())
    }
}

/// Jobs per second that the hand-written loop takes.
pub(crate) async fn enqueue(url: &str, callers: Callers, jobs: u64) -> Result<f64> {
    let limit = ByHand::open(url).await?;
    let began = stopwatch::now();
    match callers {
        Callers::One => limit.enqueue(jobs, 1).await?,
        Callers::Bulk => limit.enqueue(jobs, BULK).await?,
        Callers::Many => {
            let (calls, mut incoming) = mpsc::unbounded_channel();
            let mut tasks = JoinSet::new();
            for caller in 0..CALLERS {
                let calls = calls.clone();
                tasks.spawn(async move {
                    let mut maker = Maker::new();
                    for number in (caller..jobs).step_by(CALLERS as usize) {
                        let (reply, answer) = oneshot::channel();
                        calls.send((maker.row(&Parcel::new(number))?, reply))?;
                        answer.await?;
                    }
                    anyhow::Ok(())
                });
            }
            drop(calls);
            limit.serve(&mut incoming).await?;
            while let Some(done) = tasks.join_next().await {
                done??;
            }
        }
    }
    Ok(per_second(jobs, began))
}
