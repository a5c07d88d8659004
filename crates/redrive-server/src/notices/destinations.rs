//! Destinations that went down, and those that are back: one notice for each closing, however many servers see it.
//!
//! What is down is read from the store, and what was told of it from the notices kept there, so that a server that starts
//! in the middle of an outage neither repeats its beginning nor forgets to tell its end.

use redrive::{Activity, Destination, Notice, Phase, Result, Timestamp, What, Why};

use super::{Notifier, PER_MINUTE, Rule};
use crate::config::NoticeOn;

/// Names that were told to be down are remembered up to this.
const DOWN_MAX: usize = 10_000;
const DOWN: &str = "destination_down:";
const BACK: &str = "destination_recovered:";

impl Notifier {
    /// Looks again if the activity log has news of any.
    pub(super) async fn destinations(&mut self, lines: &[Activity]) -> Result<()> {
        let mut of_gates = lines.iter().filter(|line| line.what == What::Destination);
        let news = Some((of_gates.next().map(|line| line.at), of_gates.count()));
        if self.gates == news {
            return Ok(());
        }
        let known = self.engine.destinations().await?;
        let down: Vec<(&Destination, Timestamp, Why)> = known.iter().filter_map(is_down).collect();
        let mut told = 0;
        for (destination, since, why) in &down {
            if !self.down.contains_key(&*destination.name) && told <= PER_MINUTE {
                told += 1;
                match told > PER_MINUTE {
                    false => self.went_down(destination, *since, *why).await?,
                    true => self.many_down(*since).await?,
                }
            }
        }
        let is_back = |name: &String| !down.iter().any(|(destination, ..)| *destination.name == **name);
        let back: Vec<(String, Timestamp)> = self
            .down
            .iter()
            .filter(|(name, _)| is_back(name))
            .map(|(name, at)| (name.clone(), *at))
            .collect();
        for (name, since) in back {
            self.came_back(&name, since).await?;
        }
        self.gates = news;
        Ok(())
    }

    /// Takes in what was told of destinations, here or elsewhere.
    pub(super) fn heard_of_destination(&mut self, key: &str) {
        let read = |rest: &str| {
            let (since, name) = rest.split_once(':')?;
            Some((Timestamp::from_millis(since.parse().ok()?), name.to_owned()))
        };
        if let Some((since, name)) = key.strip_prefix(DOWN).and_then(read) {
            if self.down.len() < DOWN_MAX {
                self.down.insert(name, since);
            }
        } else if let Some((_, name)) = key.strip_prefix(BACK).and_then(read) {
            self.down.remove(&name);
        }
    }

    async fn went_down(&mut self, destination: &Destination, since: Timestamp, why: Why) -> Result<()> {
        let (name, held) = (&*destination.name, destination.held);
        let (what, message) = match why {
            Why::Credential => {
                let credential = name.rsplit_once('#').map_or(name, |(_, credential)| credential);
                let message = format!(
                    "'{name}' does not accept its credential: its jobs are held until '{credential}' is renewed. See logs."
                );
                ("needs_auth", message)
            }
            Why::Said => ("destination_down", format!("'{name}' was said to be down: its jobs are held.")),
            Why::Failing | Why::RetryAfter => {
                ("destination_down", format!("'{name}' is down: its jobs are held, {held} so far. See logs."))
            }
        };
        let notice = notice(format!("{DOWN}{}:{name}", since.as_millis()), what, since, message);
        let said = |rule: &Rule| {
            let text = rule.text.as_deref();
            text.map_or_else(|| notice.message.clone(), |text| fill(text, name, held))
        };
        self.deliver(&notice, None, &self.rules_on(NoticeOn::DestinationDown, |_| true), said).await
    }

    /// A network that is gone takes many along, which is not told one by one.
    async fn many_down(&mut self, since: Timestamp) -> Result<()> {
        let message = format!("More than {PER_MINUTE} destinations are down: their jobs are held. See logs.");
        let key = format!("destinations_down:{}", since.as_millis() / 60_000);
        let notice = notice(key, "destination_down", since, message);
        let rules = self.rules_on(NoticeOn::DestinationDown, |_| true);
        self.deliver(&notice, None, &rules, |_| notice.message.clone()).await
    }

    async fn came_back(&mut self, name: &str, since: Timestamp) -> Result<()> {
        let message = format!("'{name}' is back: its jobs go again.");
        let key = format!("{BACK}{}:{name}", since.as_millis());
        let notice = notice(key, "destination_recovered", self.engine.now(), message);
        let rules = self.rules_on(NoticeOn::DestinationRecovered, |_| true);
        self.deliver(&notice, None, &rules, |_| notice.message.clone()).await
    }
}

fn notice(key: String, what: &str, at: Timestamp, message: String) -> Notice {
    Notice { key, at, rule: "destinations".into(), what: what.into(), job: None, message }
}

fn fill(text: &str, name: &str, held: u64) -> String {
    text.replace("{destination}", name).replace("{held}", &held.to_string())
}

/// Since when a destination is down, and why. One that asked for a pause is there, and one that a person has paused needs
/// no notice.
fn is_down(destination: &Destination) -> Option<(&Destination, Timestamp, Why)> {
    match destination.gate.phase {
        Phase::Shut { why: Why::RetryAfter, .. } | Phase::Open | Phase::Ramp { .. } => None,
        Phase::Shut { since, why, .. } => Some((destination, since, why)),
        Phase::Probing { since, .. } => Some((destination, since, Why::Failing)),
    }
}
