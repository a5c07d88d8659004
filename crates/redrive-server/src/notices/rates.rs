//! Too many failures: of everything, by the figures of the store; of one queue or one kind, by what each server counts of
//! its own attempts and leaves on a shelf of the store, where all of them add it up.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use redrive::{
    Engine, Event, Happening, Json, MINUTE, Notice, Point, Result, Rng, Steps, Timestamp, days, span,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::scope::Scope;
use super::{Notifier, Rule};
use crate::config::{NoticeOn, NoticeTo};

/// Fewer attempts than this in a window say nothing about a rate.
const ATTEMPTS_MIN: u64 = 10;
/// A rate that has been too high is right again when it has fallen this far below what was asked for.
const RIGHT_AGAIN: f64 = 0.8;
/// Where the counts are.
const SHELF: &str = "rates";
/// The longest window that a rule may have.
const WINDOW_MAX: Duration = days(1);

/// How many attempts came to what in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Minute {
    /// Since the epoch.
    minute: i64,
    failed: u64,
    succeeded: u64,
}

/// What one server has counted, as it stands on the shelf.
type Counts = Vec<(Scope, Vec<Minute>)>;

/// Counts the attempts of this server that a rule is about. One that falls behind what happens counts a part of it, of
/// which the share is the same.
pub(super) struct Counting {
    /// Under which its counts are on the shelf. Another one for each process: what the last one counted stays counted.
    name: String,
    events: Receiver<Event>,
    counts: Counts,
    is_new: bool,
}

impl Counting {
    /// None where every rule is about everything, which the store counts itself, and nobody is called.
    pub(super) fn start(engine: &Engine, rules: &[Rule]) -> Option<Counting> {
        let mut scopes: Vec<Scope> =
            rules.iter().filter(|rule| is_about_rates(rule)).map(Scope::of).collect();
        let is_called = rules.iter().any(|rule| matches!(rule.to, NoticeTo::Webhook { .. }));
        if is_called && scopes.iter().any(Scope::is_everything) {
            scopes.push(Scope::of_calls());
        }
        scopes.retain(|scope| !scope.is_everything());
        scopes.sort();
        scopes.dedup();
        let counts: Counts = scopes.into_iter().map(|scope| (scope, Vec::new())).collect();
        let name = format!("{:016x}", Rng::from_os().next_u64());
        (!counts.is_empty()).then(|| Counting { name, events: engine.events(), counts, is_new: false })
    }

    /// Counts for so long.
    pub(super) async fn listen(&mut self, span: Duration) {
        let over = tokio::time::sleep(span);
        tokio::pin!(over);
        loop {
            tokio::select! { biased;
                () = &mut over => return,
                event = self.events.recv() => match event {
                    Ok(event) => self.count(&event),
                    Err(RecvError::Lagged(_)) => {}
                    // The engine is gone, and nothing more happens.
                    Err(RecvError::Closed) => return over.await,
                },
            }
        }
    }

    fn count(&mut self, event: &Event) {
        let (failed, succeeded) = match &event.what {
            Happening::Succeeded { .. } => (0, 1),
            Happening::RetryScheduled { failure: Some(_), .. } | Happening::Dead { failure: Some(_), .. } => {
                (1, 0)
            }
            _ => return,
        };
        let minute = minute_of(event.at);
        for (_, minutes) in
            self.counts.iter_mut().filter(|(scope, _)| scope.counts(&event.queue, &event.kind))
        {
            match minutes.iter_mut().rev().find(|known| known.minute == minute) {
                Some(known) => {
                    known.failed += failed;
                    known.succeeded += succeeded;
                }
                None => minutes.push(Minute { minute, failed, succeeded }),
            }
            self.is_new = true;
        }
    }

    /// Leaves what it has counted on the shelf, and gives what all have counted. What is too old is taken away.
    async fn share(&mut self, engine: &Engine, now: Timestamp) -> Result<Counts> {
        let oldest = minute_of(now) - minutes_in(WINDOW_MAX);
        if std::mem::take(&mut self.is_new) {
            self.counts.iter_mut().for_each(|(_, minutes)| minutes.retain(|known| known.minute >= oldest));
            if let Ok(json) = Json::of(&self.counts) {
                engine.keep_record(SHELF, &self.name, Some(json)).await?;
            }
        }
        let mut all = Counts::new();
        for (name, json) in engine.records(SHELF).await? {
            // What another version has left is nothing to add up, and as good as old.
            let counts: Counts = json.decode().unwrap_or_default();
            let is_old =
                |(_, minutes): &(Scope, Vec<Minute>)| minutes.iter().all(|known| known.minute < oldest);
            match counts.iter().all(is_old) && name != self.name {
                true => engine.keep_record(SHELF, &name, None).await?,
                false => all.extend(counts),
            }
        }
        Ok(all)
    }
}

fn minute_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(60_000)
}

fn minutes_in(window: Duration) -> i64 {
    i64::try_from(window.as_secs() / 60).unwrap_or(i64::MAX)
}

fn is_about_rates(rule: &Rule) -> bool {
    rule.on.contains(&NoticeOn::FailureRate)
}

impl Notifier {
    /// Whether too many attempts fail, or no longer.
    pub(super) async fn rates(&mut self, now: Timestamp) -> Result<()> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for place in self.rules_on(NoticeOn::FailureRate, |_| true) {
            let rule = &self.rules[place];
            let name = format!("{}%/{}{}", percent(rule.rate), span::format(rule.window), Scope::of(rule));
            groups.entry(name).or_default().push(place);
        }
        let counted = match &mut self.counting {
            Some(counting) => counting.share(&self.engine, now).await?,
            None => Counts::new(),
        };
        for (name, rules) in groups {
            let (scope, window) = (Scope::of(&self.rules[rules[0]]), self.rules[rules[0]].window);
            // With the minute that has just begun, which is too short to say anything alone.
            let of = |scope: &Scope| Rate::of_counts(&counted, scope, minute_of(now) - minutes_in(window));
            let rate = match scope.is_everything() {
                true => {
                    let points = self.engine.series(Steps::before(now, window + MINUTE, MINUTE)).await?;
                    Rate::of_points(&points).without(&of(&Scope::of_calls()))
                }
                false => of(&scope),
            };
            self.rate(name, &rules, &rate, now).await?;
        }
        Ok(())
    }

    async fn rate(&self, name: String, rules: &[usize], rate: &Rate, now: Timestamp) -> Result<()> {
        let rule = &self.rules[rules[0]];
        let changes = self.rates.get(&name).copied().unwrap_or(0);
        let is_high = changes % 2 == 1;
        if !rate.has_changed(is_high, rule.rate) {
            return Ok(());
        }
        let (scope, window) = (Scope::of(rule), span::format(rule.window));
        let again = if is_high { "Recovered: " } else { "" };
        let message =
            format!("{again}{} of attempts{scope} failed in the last {window} ({rate}).", rate.shown());
        let notice = Notice {
            key: format!("rate:{name}#{}", changes + 1),
            at: now,
            rule: name,
            what: if is_high { "failure_rate_recovered" } else { "failure_rate" }.into(),
            job: None,
            message,
        };
        let said = |rule: &Rule| match (&rule.text, is_high) {
            (Some(text), false) => text.replace("{rate}", &rate.shown()),
            _ => notice.message.clone(),
        };
        self.deliver(&notice, None, rules, said).await
    }
}

/// How many attempts of a window failed.
struct Rate {
    failed: u64,
    succeeded: u64,
}

impl Rate {
    fn of_points(points: &[Point]) -> Rate {
        let count = |of: fn(&Point) -> u64| points.iter().map(of).sum();
        Rate { failed: count(|point| point.failed), succeeded: count(|point| point.succeeded) }
    }

    /// Without our own calls, which the store counts like any job.
    fn without(self, calls: &Rate) -> Rate {
        Rate {
            failed: self.failed.saturating_sub(calls.failed),
            succeeded: self.succeeded.saturating_sub(calls.succeeded),
        }
    }

    /// Of what all servers have counted since this minute.
    fn of_counts(counts: &Counts, scope: &Scope, since: i64) -> Rate {
        let of_scope = counts.iter().filter(|(known, _)| known == scope).flat_map(|(_, minutes)| minutes);
        let mut rate = Rate { failed: 0, succeeded: 0 };
        for known in of_scope.filter(|known| known.minute >= since) {
            rate.failed += known.failed;
            rate.succeeded += known.succeeded;
        }
        rate
    }

    fn share(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
        let share = self.failed as f64 / (self.failed + self.succeeded).max(1) as f64;
        share
    }

    /// Whether it is time to say so: too high and not yet said, or right again after it was said. Where nothing is tried,
    /// nothing is right again.
    fn has_changed(&self, is_high: bool, limit: f64) -> bool {
        match is_high {
            false => self.failed + self.succeeded >= ATTEMPTS_MIN && self.share() >= limit,
            true => self.succeeded > 0 && self.share() < limit * RIGHT_AGAIN,
        }
    }

    fn shown(&self) -> String {
        format!("{} %", percent(self.share()))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.failed, self.failed + self.succeeded)
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_too_high_only_when_enough_was_tried_and_right_again_only_well_below() {
        let rate = |failed, succeeded| Rate { failed, succeeded };
        assert!(!rate(5, 0).has_changed(false, 0.2), "five attempts say nothing");
        assert!(rate(2, 8).has_changed(false, 0.2) && !rate(1, 9).has_changed(false, 0.2));
        assert!(!rate(19, 81).has_changed(true, 0.2), "hardly below is not right again");
        assert!(rate(15, 85).has_changed(true, 0.2) && rate(0, 1).has_changed(true, 0.2));
        assert!(!rate(0, 0).has_changed(true, 0.2), "nothing was tried");
        assert_eq!((rate(1, 7).shown(), rate(1, 7).to_string()), ("12.5 %".into(), "1 of 8".into()));
    }

    #[test]
    fn a_scope_adds_up_what_every_server_counted_within_the_window() {
        let scope =
            |kind: &str| serde_json::from_value::<Scope>(serde_json::json!({ "kind": kind })).unwrap();
        let minute = |minute, failed| Minute { minute, failed, succeeded: 1 };
        let counts = vec![
            (scope("mail"), vec![minute(10, 100), minute(11, 1)]),
            (scope("sms"), vec![minute(11, 1_000)]),
            (scope("mail"), vec![minute(12, 2)]),
        ];
        assert_eq!(Rate::of_counts(&counts, &scope("mail"), 11).to_string(), "3 of 5");
    }
}
