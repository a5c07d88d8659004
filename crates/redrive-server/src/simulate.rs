//! `redrive simulate`: what an outage costs and how the far side is brought back, before it happens.
//!
//! The real engine with its real gates works on a SQLite file while a virtual clock runs as fast as it can; only the
//! destination is a model. Beside it, against the same model, go four plain rules that others use. The same seed gives the
//! same numbers.

mod chart;
mod course;
mod others;
mod ours;
mod page;
mod scenario;
mod service;
mod stepwise;
#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};
use serde::Serialize;

pub use self::chart::chart;
pub(crate) use self::chart::{columns_of, span_of, top_of};
pub use self::course::Course;
pub use self::page::page;
pub use self::scenario::{Errors, PerSecond, RateLimit, Scenario, Spell};

/// Runs a scenario under every policy, ours first. `progress` hears who is at it, and how far it is, from 0 to 1.
///
/// # Errors
///
/// What is wrong with the scenario, or why the engine could not work.
pub fn simulate(scenario: &Scenario, progress: &dyn Fn(&str, f64)) -> Result<Vec<Course>> {
    let problems = scenario.problems();
    ensure!(problems.is_empty(), "this cannot be simulated: {}", problems.join("; "));
    let mut courses = vec![ours::run(scenario, &|done| progress(ours::NAME, done))?];
    for rule in others::Rule::ALL {
        progress(rule.name(), 0.0);
        courses.push(others::run(scenario, rule));
    }
    Ok(courses)
}

/// The engine alone.
///
/// # Errors
///
/// As [`simulate`].
pub fn simulate_ours(scenario: &Scenario) -> Result<Course> {
    let problems = scenario.problems();
    ensure!(problems.is_empty(), "this cannot be simulated: {}", problems.join("; "));
    ours::run(scenario, &|_| ())
}

/// What a program reads: `{"policies":[…]}`, ours first.
pub fn json(courses: &[Course]) -> String {
    #[derive(Serialize)]
    struct Answer<'c> {
        policies: &'c [Course],
    }
    serde_json::to_string(&Answer { policies: courses }).expect("names and numbers can be written")
}
