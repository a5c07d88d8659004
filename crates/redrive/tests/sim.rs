//! Simulated worlds. `make sim SEED=7` replays one and shows all of it.

#![expect(clippy::disallowed_methods, reason = "how many worlds, and which, comes from the environment")]

use std::collections::BTreeSet;

use redrive::sim::{self, Report, TRACE_LINES};

#[test]
fn smoke() {
    let n: u64 = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut seen = BTreeSet::new();
    let mut bad = 0;
    let t = std::time::Instant::now();
    let from: u64 = std::env::var("FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let max: usize = std::env::var("TRACE").ok().and_then(|n| n.parse().ok()).unwrap_or(TRACE_LINES);
    for seed in from..from + n {
        let t = std::time::Instant::now();
        let report: Report = sim::run(seed, None, max);
        if t.elapsed().as_millis() > 200 {
            println!("seed {seed} took {:?} {} lines", t.elapsed(), report.lines);
        }
        if max > TRACE_LINES {
            println!("{report}");
        }
        let again = sim::run(seed, None, TRACE_LINES);
        if again.hash != report.hash {
            println!("seed {seed} differs");
        }
        seen.extend(report.seen.iter().copied());
        if report.broken.is_some() {
            bad += 1;
            if bad < 3 {
                println!("{report}");
            } else {
                println!("{seed} {:?}", report.broken.as_ref().map(|b| &b[..b.len().min(150)]));
            }
        }
    }
    println!("{n} seeds in {:?}; {bad} bad; seen {seen:?}", t.elapsed());
}
