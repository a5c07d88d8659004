//! What a page of a list costs in a store with very many jobs, beside the same page in a store with a thousand.

use std::time::Duration;

use anyhow::{Context as _, Result};
use redrive::{
    Attempt, DEFAULT_QUEUE, Engine, Failure, Filter, NewJob, Page, Payload, Queue, StateName, days,
};
use serde::{Deserialize, Serialize};
use tokio_postgres::NoTls;

use super::report::median;
use super::workload::{self, BULK};
use crate::cli::StoreUrl;
use crate::stopwatch;

/// The store with few jobs.
pub(crate) const FEW: u64 = 1_000;
/// Rows of a page, as the dashboard asks for them.
const PAGE: usize = 50;
/// Each page is asked for so often, in turn with the others.
const LOOKS: usize = 15;
/// The other queue.
const LETTERS: &str = "letters";
/// The page of a label that hardly any job has.
pub(crate) const RARE_PAGE: &str = "rare";
/// One job in so many has it.
const RARE: u64 = 100_000;
/// Places of the engine that fills a store.
const PLACES: usize = 4_096;

/// Two kinds of jobs with the same content.
#[derive(Serialize, Deserialize)]
struct Parcel(Traits);
#[derive(Serialize, Deserialize)]
struct Letter(Traits);

impl Payload for Parcel {
    const KIND: &'static str = "parcel";
}
impl Payload for Letter {
    const KIND: &'static str = "letter";
}

/// In which a job differs from the others: drawn by its number, one by one, so that no filter implies another.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Traits {
    number: u64,
    drawn: u64,
}

impl Traits {
    fn of(number: u64) -> Traits {
        Traits { number, drawn: number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 }
    }

    /// Which of so many, by the digits behind those that others look at.
    fn one_of(self, many: u64, behind: u64) -> u64 {
        self.drawn / behind % many
    }

    fn job(self) -> NewJob {
        let job = match self.one_of(2, 1) {
            0 => NewJob::from(Parcel(self)),
            _ => NewJob::from(Letter(self)),
        };
        let job = job
            .queue(if self.one_of(5, 2) == 0 { LETTERS } else { DEFAULT_QUEUE })
            .destination(format!("host-{}.example.org", self.one_of(10, 10)))
            .label("lane", self.one_of(10, 100).to_string());
        let job = if self.number.is_multiple_of(RARE) { job.label("rare", "yes") } else { job };
        if self.one_of(2, 1_000) == 0 { job.after(days(30)) } else { job }
    }

    /// Of those that run now, two in five are dead, of one of two causes.
    fn outcome(self) -> Result<(), Failure> {
        match self.one_of(5, 2_000) {
            cause @ 0..2 => Err(Failure::permanent("refused").code(format!("CAUSE_{cause}"))),
            _ => Ok(()),
        }
    }
}

async fn engine(store: &StoreUrl) -> Result<Engine> {
    let queue = |name| Queue::new(name).concurrency(PLACES);
    Ok(Engine::on(workload::open(store).await?)
        .queue(queue(DEFAULT_QUEUE))
        .queue(queue(LETTERS))
        .handle(|attempt: Attempt<Parcel>| async move { attempt.payload.0.outcome() })
        .handle(|attempt: Attempt<Letter>| async move { attempt.payload.0.outcome() })
        .build()?)
}

/// Fills a store with jobs in all states.
async fn fill(store: &StoreUrl, jobs: u64) -> Result<()> {
    let engine = engine(store).await?;
    for from in (0..jobs).step_by(BULK as usize) {
        let until = (from + BULK).min(jobs);
        engine.enqueue_all((from..until).map(|number| Traits::of(number).job())).await?;
    }
    engine.drain_due().await?;
    workload::close(engine, store).await?;
    if let StoreUrl::Postgres(url) = store {
        // As the server does by itself, a while after so much was written.
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute("VACUUM (ANALYZE)").await.context("cannot tidy the database")?;
        drop(client);
        connection.await??;
    }
    Ok(())
}

/// What is asked for, under which name.
async fn asked(engine: &Engine) -> Result<Vec<(&'static str, Filter, Page)>> {
    let first = Page { before: None, limit: PAGE };
    let all = Filter::default();
    let group = engine.groups(1).await?.into_iter().next().and_then(|group| group.fingerprint);
    let newest = engine.list(&all, Page { limit: 1, ..first }).await?.jobs;
    let newest = newest.first().context("the store has jobs")?.seq;
    let states = |state| Filter { states: vec![state], ..Filter::default() };
    let label = |name: &str, value: &str| Filter {
        labels: [(name.to_owned(), value.to_owned())].into(),
        ..Filter::default()
    };
    let letters = |filter: Filter| Filter { kind: Some(Letter::KIND.into()), ..filter };
    Ok(vec![
        ("plain", all.clone(), first),
        ("deep", all, Page { before: Some(newest / 2), limit: PAGE }),
        ("waiting", states(StateName::Waiting), first),
        ("succeeded", states(StateName::Succeeded), first),
        ("dead", states(StateName::Dead), first),
        ("kind_waiting", letters(states(StateName::Waiting)), first),
        ("kind_succeeded", letters(states(StateName::Succeeded)), first),
        ("kind_dead", letters(states(StateName::Dead)), first),
        ("queue", Filter { queue: Some(LETTERS.into()), ..Filter::default() }, first),
        (
            "destination",
            Filter { destination: Some("host-3.example.org".into()), ..Filter::default() },
            first,
        ),
        ("label", label("lane", "3"), first),
        ("group", Filter { fingerprint: group, ..Filter::default() }, first),
        (RARE_PAGE, label("rare", "yes"), first),
    ])
}

/// A page and what goes with it, as the server answers it.
async fn look(engine: &Engine, filter: &Filter, page: Page) -> Result<Duration> {
    let began = stopwatch::now();
    let paged = engine.list(filter, page).await?;
    engine.last_failed(&paged.jobs).await?;
    Ok(began.elapsed())
}

/// Milliseconds of each page: its name, with few jobs, with many.
pub(crate) async fn compare(
    few: &StoreUrl,
    many: &StoreUrl,
    jobs: u64,
) -> Result<Vec<(&'static str, f64, f64)>> {
    fill(few, FEW).await?;
    fill(many, jobs).await?;
    let engines = [engine(few).await?, engine(many).await?];
    let mut found = Vec::new();
    let asked = [asked(&engines[0]).await?, asked(&engines[1]).await?];
    for (index, (name, ..)) in asked[0].iter().enumerate() {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..LOOKS {
            for (side, engine) in engines.iter().enumerate() {
                let (_, filter, page) = &asked[side][index];
                times[side].push(look(engine, filter, *page).await?.as_secs_f64() * 1_000.0);
            }
        }
        let [few, many] = times.map(median);
        found.push((*name, few, many));
    }
    let [one, other] = engines;
    workload::close(one, few).await?;
    workload::close(other, many).await?;
    Ok(found)
}
