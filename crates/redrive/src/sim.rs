//! Simulated worlds: the real engine on the memory store, with faults, under a clock that nobody waits for.
//!
//! A world is a seed. It has nodes, queues, policies, jobs and a list of what goes wrong; it runs on one thread with
//! tokio's time paused, so that a month passes in milliseconds and the same seed gives the same trace. A book is kept
//! outside the store, and every answer is held against it (`sim/book.rs`, `sim/hand.rs`, `sim/check.rs`). First anything may go wrong
//! and nothing may be broken; then nothing goes wrong and everything must finish.
//!
//! [`Bug`]s are planted to see that the worlds would notice.

mod act;
mod book;
mod check;
mod doors;
mod faulty;
mod hand;
mod misled;
mod node;
mod plan;
mod planted;
mod settled;
mod ties;
mod witness;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use self::plan::Plan;
use self::witness::Witness;
use self::world::World;

pub use self::faulty::Faulty;
pub use self::planted::{Bug, Planted, Side};

/// How a world went.
#[derive(Debug)]
pub struct Report {
    /// Which world.
    pub seed: u64,
    /// Of everything that was asked and answered, with the times: equal for equal runs.
    pub hash: u64,
    /// How many lines the trace had.
    pub lines: u64,
    /// How long it took, by its own clock.
    pub lasted: Duration,
    /// What was seen to happen.
    pub seen: BTreeSet<&'static str>,
    /// Which promise was broken, if one was.
    pub broken: Option<String>,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

/// How much of the trace a report shows.
pub const TRACE_LINES: usize = 40;

/// Runs the world of this seed, with a bug planted if one is given, and keeps the last `trace_max` lines of its trace.
pub fn run(seed: u64, bug: Option<Bug>, trace_max: usize) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets can always be made");
    let (witness, started, ended) = runtime.block_on(async {
        let clock = crate::testing::clock();
        let plan = Plan::draw(seed);
        let callers = plan.nodes.len() + 1;
        let witness = Arc::new(Witness::new(clock.clone(), seed, plan.rates, callers, trace_max.max(1)));
        let started = clock.now();
        let ended = match World::new(plan, bug, witness.clone()) {
            Ok(world) => world.run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            witness.check(|_| Err(format!("the world came to an end: {error}")));
        }
        (witness, started, clock.now())
    });
    let (hash, lines, trace, broken) = witness.report();
    let seen = witness.book(|book| std::mem::take(&mut book.seen));
    Report { seed, hash, lines, lasted: ended.since(started), seen, broken, trace }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        let Report { seed, lines, lasted, .. } = self;
        writeln!(f, "seed {seed}: {lines} lines in {}", crate::span::format(*lasted))?;
        match &self.broken {
            Some(broken) => writeln!(f, "BROKEN: {broken}\nreplay it with make sim SEED={seed}"),
            None => writeln!(f, "all promises held"),
        }
    }
}
