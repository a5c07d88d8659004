//! Asking destinations whether they are there, so that jobs need not find out: while one is down, an answer opens it; while
//! it is open, three questions in a row without one shut it.
//!
//! Each server asks for itself. Where some reach a destination and others do not, write the rule for one of them.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use redrive::{Engine, Phase, Result, Why, Word, secs};

use crate::config::{HealthAt, HealthConfig};
use crate::egress::{Egress, Request, Timeouts};

/// Questions in a row without an answer, after which a destination is taken to be gone.
const FAILURES: u32 = 3;
/// The longest wait for an answer.
const ANSWER_MAX: Duration = secs(10);

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

impl Health {
    /// With these rules, each for a destination of that name.
    pub fn new(engine: Engine, egress: Egress, rules: Vec<(String, HealthConfig)>) -> Health {
        Health { engine, egress, rules }
    }

    /// Asks until it is dropped.
    pub async fn run(self) {
        join_all(self.rules.iter().map(|(name, rule)| self.watch(name, rule))).await;
    }

    async fn watch(&self, name: &str, rule: &HealthConfig) {
        let mut failures = 0;
        loop {
            tokio::time::sleep(rule.every).await;
            if let Err(error) = self.look(name, rule, &mut failures).await {
                tracing::warn!(destination = name, %error, "Cannot look after a destination; trying again");
            }
        }
    }

    async fn look(&self, name: &str, rule: &HealthConfig, failures: &mut u32) -> Result<()> {
        let Some(purpose) = self.purpose(name).await? else {
            *failures = 0;
            return Ok(());
        };
        let answer = self.ask(rule).await;
        if let Err(why) = &answer {
            tracing::debug!(destination = name, why, "Not there");
        }
        let (now, word) = step(purpose, answer.is_ok(), *failures);
        *failures = now;
        match word {
            Some(word) => self.engine.say(name, word).await,
            None => Ok(()),
        }
    }

    /// What there is to find out; nothing while a pause was asked for, by itself or by a person, or while it refuses
    /// what it is given: an answer to a question says nothing about those.
    async fn purpose(&self, name: &str) -> Result<Option<Purpose>> {
        let known = self.engine.destinations().await?;
        let gate = known.into_iter().find(|known| &*known.name == name).map(|known| known.gate);
        Ok(match gate.map(|gate| (gate.paused, gate.phase)) {
            Some((true, _)) => None,
            Some((_, Phase::Shut { why: Why::RetryAfter | Why::Credential, .. })) => None,
            Some((_, Phase::Shut { .. } | Phase::Probing { .. })) => Some(Purpose::IsItBack),
            Some((_, Phase::Open | Phase::Ramp { .. })) | None => Some(Purpose::IsItThere),
        })
    }

    async fn ask(&self, rule: &HealthConfig) -> Result<(), String> {
        let within = rule.every.clamp(secs(1), ANSWER_MAX);
        match &rule.at {
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
