//! Asking destinations whether they are there, so that jobs need not find out: while one is down, an answer opens it; while
//! it is open, three questions in a row without one shut it.
//!
//! Each server asks for itself. Where some reach a destination and others do not, write the rule for one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use redrive::{Engine, Gate, Phase, Result, Why, Word, pattern_matches, secs};

use crate::config::{HealthAt, HealthConfig};
use crate::egress::{Egress, Request, Timeouts};

/// Questions in a row without an answer, after which a destination is taken to be gone.
const FAILURES: u32 = 3;
/// The longest wait for an answer.
const ANSWER_MAX: Duration = secs(10);
/// Of those that match a pattern, so many are asked in a round,
const NAMES_MAX: usize = 1_000;
/// so many of them at once.
const AT_ONCE: usize = 50;

/// By destination: questions in a row that had no answer.
type Failures = BTreeMap<Arc<str>, u32>;

/// Asks for as long as it is run.
pub struct Health {
    engine: Engine,
    egress: Egress,
    rules: Vec<(String, HealthConfig)>,
}

/// What an answer would be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To open what is shut.
    IsItBack,
    /// To shut what is open.
    IsItThere,
}

/// What one round has to find out.
struct Question {
    name: Arc<str>,
    purpose: Purpose,
    at: HealthAt,
}

impl Health {
    /// With these rules, each for a destination or for all that match a pattern; the longest pattern that matches decides.
    pub fn new(engine: Engine, egress: Egress, rules: Vec<(String, HealthConfig)>) -> Health {
        Health { engine, egress, rules }
    }

    /// Asks until it is dropped.
    pub async fn run(self) {
        join_all(self.rules.iter().map(|(pattern, rule)| self.watch(pattern, rule))).await;
    }

    async fn watch(&self, pattern: &str, rule: &HealthConfig) {
        let mut failures = BTreeMap::new();
        loop {
            tokio::time::sleep(rule.every).await;
            if let Err(error) = self.look(pattern, rule, &mut failures).await {
                tracing::warn!(pattern, %error, "Cannot look after destinations; trying again");
            }
        }
    }

    async fn look(&self, pattern: &str, rule: &HealthConfig, failures: &mut Failures) -> Result<()> {
        let questions = self.questions(pattern, rule).await?;
        failures.retain(|name, _| questions.iter().any(|question| question.name == *name));
        // What is the same for several is asked once.
        let places: BTreeSet<&HealthAt> = questions.iter().map(|question| &question.at).collect();
        let places: Vec<HealthAt> = places.into_iter().cloned().collect();
        let mut answers = BTreeMap::new();
        for part in places.chunks(AT_ONCE) {
            let asked = join_all(part.iter().map(|at| self.ask(at, rule.every))).await;
            answers.extend(part.iter().zip(asked));
        }
        for Question { name, purpose, at } in &questions {
            let Some(answer) = answers.get(at) else { continue };
            if let Err(why) = answer {
                tracing::debug!(destination = %name, why, "Not there");
            }
            let count = failures.entry(name.clone()).or_default();
            let (now, word) = step(*purpose, answer.is_ok(), *count);
            *count = now;
            if let Some(word) = word {
                self.engine.say(name, word).await?;
            }
        }
        Ok(())
    }

    /// Of a destination, always. Of those that match a pattern, as many as there are time and reason to ask: the ones that
    /// are held or watched already, and the ones that were called lately.
    async fn questions(&self, pattern: &str, rule: &HealthConfig) -> Result<Vec<Question>> {
        let known = self.engine.destinations().await?;
        let mut names: BTreeSet<Arc<str>> = known.iter().map(|known| known.name.clone()).collect();
        names.extend(self.engine.called_lately());
        names.retain(|name| self.rule_of(name) == Some(pattern));
        if !pattern.contains('*') {
            names.insert(pattern.into());
        }
        let questions = names.into_iter().filter_map(|name| {
            let gate = known.iter().find(|known| known.name == name).map(|known| &known.gate);
            Some(Question { purpose: purpose(gate)?, at: rule.at.of(&name)?, name })
        });
        Ok(questions.take(NAMES_MAX).collect())
    }

    fn rule_of(&self, name: &str) -> Option<&str> {
        let patterns = self.rules.iter().map(|(pattern, _)| pattern.as_str());
        patterns.filter(|pattern| pattern_matches(pattern, name)).max_by_key(|pattern| pattern.len())
    }

    async fn ask(&self, at: &HealthAt, every: Duration) -> Result<(), String> {
        let within = every.clamp(secs(1), ANSWER_MAX);
        match at {
            HealthAt::Tcp(host, port) => {
                self.egress.reach(host, *port, within).await.map_err(|error| error.to_string())
            }
            HealthAt::Http(url) => {
                let mut request = Request::new(Method::GET, url).map_err(|error| error.to_string())?;
                request.timeouts =
                    Timeouts { connect: within, first_byte: within, total: within, ..Timeouts::default() };
                let answer = self.egress.send(request).await.map_err(|error| error.to_string())?;
                match answer.status.is_success() {
                    true => Ok(()),
                    false => Err(format!("it answers with status {}", answer.status.as_u16())),
                }
            }
        }
    }
}

/// What there is to find out; nothing while a pause was asked for, by itself or by a person, or while it refuses what it
/// is given: an answer to a question says nothing about those.
fn purpose(gate: Option<&Gate>) -> Option<Purpose> {
    match gate.map(|gate| (gate.paused, &gate.phase)) {
        Some((true, _)) => None,
        Some((_, Phase::Shut { why: Why::RetryAfter | Why::Credential, .. })) => None,
        Some((_, Phase::Shut { .. } | Phase::Probing { .. })) => Some(Purpose::IsItBack),
        Some((_, Phase::Open | Phase::Ramp { .. })) | None => Some(Purpose::IsItThere),
    }
}

/// How many questions in a row have had no answer now, and what is to be said.
fn step(purpose: Purpose, is_there: bool, failures: u32) -> (u32, Option<Word>) {
    match (purpose, is_there) {
        (Purpose::IsItBack, true) => (0, Some(Word::Up)),
        (Purpose::IsItBack, false) | (Purpose::IsItThere, true) => (0, None),
        (Purpose::IsItThere, false) if failures + 1 < FAILURES => (failures + 1, None),
        (Purpose::IsItThere, false) => (0, Some(Word::Down)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_questions_in_a_row_without_an_answer_shut_it_and_one_answer_opens_it() {
        let mut failures = 0;
        let mut said = Vec::new();
        for is_there in [false, false, true, false, false, false] {
            let (now, word) = step(Purpose::IsItThere, is_there, failures);
            failures = now;
            said.push(word);
        }
        assert_eq!(said, [None, None, None, None, None, Some(Word::Down)]);
        assert_eq!(step(Purpose::IsItBack, false, 0), (0, None));
        assert_eq!(step(Purpose::IsItBack, true, 0), (0, Some(Word::Up)));
    }
}
