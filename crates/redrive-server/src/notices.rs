//! Telling people: what happened that somebody wants to know, each thing once however many servers notice it.
//!
//! What there is to tell is read from the store, where it was written with what happened: from the activity log, and from
//! the figures by the minute. So it does not matter which server ran the job, and nothing is forgotten over a restart.
//! A webhook is a job like any other: signed, retried, and to be seen where jobs are seen.

mod destinations;
mod rates;

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::{
    Activity, Call, Engine, GiveUp, Job, JobDetail, Json, Limit, NewJob, Notice, Result, State, Timestamp,
    What, mins, secs,
};
use serde_json::json;

use self::rates::Counting;
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
    /// What is counted for rules about one queue or one kind.
    counting: Option<Counting>,
    /// Destinations that were told to be down, and since when they are.
    down: BTreeMap<String, Timestamp>,
    /// What the activity log had of destinations when they were last looked at.
    gates: Option<(Option<Timestamp>, usize)>,
}

impl Notifier {
    /// With these rules, beside what every dashboard is told.
    pub fn new(engine: Engine, rules: Vec<Rule>) -> Notifier {
        let (seen, rates, down) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let counting = Counting::start(&engine, &rules);
        Notifier { engine, rules, seen, heard: 0, rates, counting, down, gates: None }
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
            match &mut self.counting {
                Some(counting) => counting.listen(LOOK_EVERY).await,
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
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
