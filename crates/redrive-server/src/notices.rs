//! Telling people: what happened that somebody wants to know, each thing once however many servers notice it.
//!
//! What there is to tell is read from the store, where it was written with what happened: from the activity log, and from
//! the figures by the minute. So it does not matter which server ran the job, and nothing is forgotten over a restart.
//! A webhook is a job like any other: signed, retried, and to be seen where jobs are seen.

mod destinations;

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::{
    Activity, Call, Engine, GiveUp, Job, JobDetail, Json, Limit, MINUTE, NewJob, Notice, Result, State,
    Steps, Timestamp, What, mins, secs, span,
};
use serde_json::json;

use crate::config::{Notice as Rule, NoticeOn, NoticeTo};

/// How often to look.
const LOOK_EVERY: Duration = secs(1);
/// How often the failure rate is looked at.
const RATE_EVERY: u64 = 5;
/// Lines of the activity log that are looked at each time.
const LINES: usize = 1_000;
/// How far back a server looks that has just started.
const LOOK_BACK: Duration = mins(10);
/// How long what was told already is remembered here, so that it is not asked for again and again.
const REMEMBERED: Duration = mins(20);
/// Of one sort, as many are told one by one in a minute; then it is said that there are more.
const PER_MINUTE: usize = 20;
/// Fewer attempts than this in a window say nothing about a rate.
const ATTEMPTS_MIN: u64 = 10;
/// A rate that has been too high is right again when it has fallen this far below what was asked for.
const RIGHT_AGAIN: f64 = 0.8;
/// What says that a job is itself a notice, about which nobody is called.
const LABEL: &str = "redrive.notice";

/// Looks for what there is to tell, for as long as it is run.
pub struct Notifier {
    engine: Engine,
    rules: Vec<Rule>,
    /// When each was noticed.
    seen: BTreeMap<String, Timestamp>,
    /// The place of the last notice that was heard of.
    heard: i64,
    /// For each rule about rates: how often it has changed its mind. Odd while the rate is too high.
    rates: BTreeMap<String, u64>,
    /// Destinations that were told to be down, and since when they are.
    down: BTreeMap<String, Timestamp>,
    /// What the activity log had of destinations when they were last looked at.
    gates: Option<(Option<Timestamp>, usize)>,
}

impl Notifier {
    /// With these rules, beside what every dashboard is told.
    pub fn new(engine: Engine, rules: Vec<Rule>) -> Notifier {
        let (seen, rates, down) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Notifier { engine, rules, seen, heard: 0, rates, down, gates: None }
    }

    /// Tells `tell` every notice of the store that comes from now on, and makes those that are due.
    pub async fn run(mut self, tell: impl Fn(Notice)) {
        let mut is_caught_up = false;
        let mut looks = 0_u64;
        loop {
            if let Err(error) = self.look(looks, &mut is_caught_up, &tell).await {
                tracing::warn!(%error, "Cannot look for what there is to tell; trying again");
            }
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&mut self, looks: u64, is_caught_up: &mut bool, tell: &impl Fn(Notice)) -> Result<()> {
        self.hear(|notice| {
            if *is_caught_up {
                tell(notice);
            }
        })
        .await?;
        *is_caught_up = true;
        let now = self.engine.now();
        self.jobs(now).await?;
        if looks.is_multiple_of(RATE_EVERY) {
            self.rates(now).await?;
        }
        self.hear(tell).await
    }

    /// What was noticed since, here or elsewhere.
    async fn hear(&mut self, tell: impl Fn(Notice)) -> Result<()> {
        for (place, notice) in self.engine.notices(self.heard, LINES).await? {
            self.heard = place;
            if let Some((rule, count)) = notice.key.strip_prefix("rate:").and_then(|key| key.rsplit_once('#'))
            {
                self.rates.insert(rule.to_owned(), count.parse().unwrap_or(0));
            }
            self.heard_of_destination(&notice.key);
            tell(notice);
        }
        Ok(())
    }

    /// Jobs that came to need a person, and those that finished after all; destinations likewise.
    async fn jobs(&mut self, now: Timestamp) -> Result<()> {
        self.seen.retain(|_, at| now.since(*at) < REMEMBERED);
        let mut lines = self.engine.activity(LINES).await?;
        self.destinations(&lines).await?;
        lines.retain(|line| {
            matches!(line.what, What::Dead | What::Recovered) && now.since(line.at) < LOOK_BACK
        });
        lines.reverse();
        let mut told: BTreeMap<(&str, i64), usize> = BTreeMap::new();
        for line in &lines {
            let minute = line.at.as_millis() / 60_000;
            let count = told.entry((line.what.as_str(), minute)).or_default();
            *count += 1;
            match (*count).cmp(&(PER_MINUTE + 1)) {
                std::cmp::Ordering::Less => self.job(line, now).await?,
                std::cmp::Ordering::Equal => self.more(line, minute, now).await?,
                std::cmp::Ordering::Greater => {}
            }
        }
        Ok(())
    }

    async fn job(&mut self, line: &Activity, now: Timestamp) -> Result<()> {
        let key = format!("{}:{}:{}", line.what.as_str(), line.job, line.at.as_millis());
        if self.seen.contains_key(&key) {
            return Ok(());
        }
        let Some(detail) = self.engine.get(line.job).await? else { return Ok(()) };
        let facts = Facts::of(&detail, line);
        let notice = Notice {
            key: key.clone(),
            at: line.at,
            rule: "jobs".into(),
            what: line.what.as_str().into(),
            job: Some(line.job),
            message: facts.say(facts.usual()),
        };
        let on = if line.what == What::Dead { NoticeOn::Dead } else { NoticeOn::Recovered };
        let wants = |rule: &Rule| {
            rule.on.contains(&on)
                && rule.queue.as_deref().is_none_or(|queue| *queue == *line.queue)
                && rule.kind.as_deref().is_none_or(|kind| *kind == *line.kind)
        };
        let is_itself_one = detail.job.extras().labels.contains_key(LABEL);
        let rules: Vec<Rule> = self.rules.iter().filter(|rule| wants(rule)).cloned().collect();
        let said = |rule: &Rule| rule.text.as_deref().map_or(notice.message.clone(), |text| facts.say(text));
        self.deliver(&notice, &rules, is_itself_one, said).await?;
        self.seen.insert(key, now);
        Ok(())
    }

    /// A storm is not told drop by drop.
    async fn more(&mut self, line: &Activity, minute: i64, now: Timestamp) -> Result<()> {
        let key = format!("more:{}:{minute}", line.what.as_str());
        if self.seen.contains_key(&key) {
            return Ok(());
        }
        let (on, what) = match line.what {
            What::Dead => (NoticeOn::Dead, "failed for good"),
            _ => (NoticeOn::Recovered, "completed after retries"),
        };
        let notice = Notice {
            key: key.clone(),
            at: line.at,
            rule: "jobs".into(),
            what: line.what.as_str().into(),
            job: None,
            message: format!("More than {PER_MINUTE} operations {what} within a minute. See logs."),
        };
        let rules: Vec<Rule> = self.rules.iter().filter(|rule| rule.on.contains(&on)).cloned().collect();
        self.deliver(&notice, &rules, false, |_| notice.message.clone()).await?;
        self.seen.insert(key, now);
        Ok(())
    }

    /// Whether too many attempts fail, or no longer.
    async fn rates(&mut self, now: Timestamp) -> Result<()> {
        let mut groups: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| rule.on.contains(&NoticeOn::FailureRate)) {
            let name = format!("{}%/{}", percent(rule.rate), span::format(rule.window));
            groups.entry(name).or_default().push(rule.clone());
        }
        for (name, rules) in groups {
            let Rule { window, rate: limit, .. } = rules[0];
            let points = self.engine.series(Steps::before(now, window, MINUTE)).await?;
            let count = |of: fn(&redrive::Point) -> u64| points.iter().map(of).sum::<u64>();
            let rate = Rate { failed: count(|p| p.failed), succeeded: count(|p| p.succeeded) };
            let changes = self.rates.get(&name).copied().unwrap_or(0);
            let is_high = changes % 2 == 1;
            if !rate.has_changed(is_high, limit) {
                continue;
            }
            let window = span::format(window);
            let message = match is_high {
                false => format!("{} of attempts failed in the last {window} ({rate}).", rate.shown()),
                true => {
                    format!("Recovered: {} of attempts failed in the last {window} ({rate}).", rate.shown())
                }
            };
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
            self.deliver(&notice, &rules, false, said).await?;
        }
        Ok(())
    }

    /// Hands a notice to whoever is called, then keeps it. In this order: if the process dies in between, it is handed
    /// over again, which the key of the call makes one.
    async fn deliver(
        &self,
        notice: &Notice,
        rules: &[Rule],
        is_itself_one: bool,
        said: impl Fn(&Rule) -> String,
    ) -> Result<()> {
        for (at, rule) in rules.iter().enumerate() {
            if let (NoticeTo::Webhook { url, endpoint }, false) = (&rule.to, is_itself_one) {
                self.call(notice, at, url, endpoint.as_deref(), &said(rule)).await?;
            }
        }
        if self.engine.notice(notice).await?.is_none() {
            return Ok(());
        }
        for rule in rules.iter().filter(|rule| rule.to == NoticeTo::Log) {
            let (what, message) = (notice.what.as_str(), said(rule));
            match notice.what.as_str() {
                "dead" | "failure_rate" | "destination_down" | "needs_auth" => {
                    tracing::warn!(what, job_id = notice.job.map(tracing::field::display), "{message}")
                }
                _ => tracing::info!(what, job_id = notice.job.map(tracing::field::display), "{message}"),
            }
        }
        Ok(())
    }

    async fn call(
        &self,
        notice: &Notice,
        number: usize,
        url: &str,
        endpoint: Option<&str>,
        message: &str,
    ) -> Result<()> {
        let body = json!({
            "type": format!("redrive.{}", notice.what),
            "timestamp": notice.at,
            "data": {
                "message": message, "rule": notice.rule, "job": notice.job,
                "log": notice.job.map(|job| format!("/api/v1/jobs/{job}")),
            },
        });
        let mut payload = json!({ "method": "POST", "url": url, "body": body });
        if let Some(endpoint) = endpoint {
            payload["endpoint"] = endpoint.into();
        }
        let Ok(payload) = Json::of(&payload) else { return Ok(()) };
        let host = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let mut job = NewJob::of_kind("http", payload).label(LABEL, notice.what.clone());
        if let Some(host) = host {
            job = job.destination(host);
        }
        let key = format!("notice/{number}/{}", notice.key);
        // The same for all who noticed it, however they word it.
        let call = Call { digest: key.clone(), key };
        self.engine.enqueue_once(call, [job]).await.map(drop)
    }
}

/// What there is to say about a job.
struct Facts<'a> {
    job: &'a Job,
    what: What,
    retries: u32,
    error: &'a str,
}

impl Facts<'_> {
    fn of<'a>(detail: &'a JobDetail, line: &Activity) -> Facts<'a> {
        let job = &detail.job;
        let last = detail.attempts.iter().rev().find_map(|attempt| attempt.failure.as_ref());
        // Given up by the policy: the number is the policy's own. Otherwise as many as there were.
        let allowed = match (job.policy.name.as_deref(), job.policy.limit) {
            // Whose words these are counts the first try as one of them.
            (Some("offline"), Limit::Attempts(count)) => Some(count),
            _ => job.policy.retries_allowed(job.origin),
        };
        let made = job.ledger.attempt.saturating_sub(u32::from(job.origin == redrive::Origin::Engine));
        let retries = match job.state {
            State::Dead { why: GiveUp::Exhausted, .. } => allowed.unwrap_or(made),
            _ => made,
        };
        Facts { job, what: line.what, retries, error: last.map_or("", |failure| failure.message.as_str()) }
    }

    fn usual(&self) -> &'static str {
        match self.what {
            What::Dead => "Operation '{operation_type}' failed after {retries} retries. See logs.",
            _ => "Operation '{operation_type}' completed after {retries} retries.",
        }
    }

    fn say(&self, text: &str) -> String {
        text.replace("{retries}", &self.retries.to_string())
            .replace("{job}", &self.job.id.to_string())
            .replace("{queue}", &self.job.queue)
            .replace("{kind}", &self.job.kind)
            .replace("{operation_type}", &self.job.kind)
            .replace("{error}", self.error)
    }
}

/// How many attempts of a window failed.
struct Rate {
    failed: u64,
    succeeded: u64,
}

impl Rate {
    fn share(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share for people to read")]
        let share = self.failed as f64 / (self.failed + self.succeeded).max(1) as f64;
        share
    }

    /// Whether it is time to say so: too high and not yet said, or right again after it was said.
    fn has_changed(&self, is_high: bool, limit: f64) -> bool {
        match is_high {
            false => self.failed + self.succeeded >= ATTEMPTS_MIN && self.share() >= limit,
            true => self.share() < limit * RIGHT_AGAIN,
        }
    }

    fn shown(&self) -> String {
        format!("{} %", percent(self.share()))
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
        assert!(rate(15, 85).has_changed(true, 0.2) && rate(0, 0).has_changed(true, 0.2));
        assert_eq!((rate(1, 7).shown(), rate(1, 7).to_string()), ("12.5 %".into(), "1 of 8".into()));
    }
}
