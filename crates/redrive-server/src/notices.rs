//! Telling people: what happened that somebody wants to know, each thing once however many servers notice it.
//!
//! What there is to tell is read from the store, where it was written with what happened: from the activity log, and from
//! the figures by the minute. So it does not matter which server ran the job, and nothing is forgotten over a restart.
//! A webhook is a job like any other: signed, retried, and to be seen where jobs are seen.

mod destinations;
mod jobs;
mod rates;
mod scope;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redrive::{Call, DEFAULT_QUEUE, Engine, Job, Json, NewJob, Notice, Queue, Result, Timestamp, mins, secs};
use serde_json::json;

use self::jobs::Ration;
use self::rates::Counting;
use crate::config::{Config, Notice as Rule, NoticeOn, NoticeTo};

/// How often to look.
const LOOK_EVERY: Duration = secs(1);
/// How often the failure rate is looked at.
const RATE_EVERY: u64 = 5;
/// Lines of the activity log that are looked at each time, unless there are more since the last.
const LINES: usize = 1_000;
/// How far back a server looks that has just started.
const LOOK_BACK: Duration = mins(10);
/// How long what was told already is remembered here, so that it is not asked for again and again.
const REMEMBERED: Duration = mins(20);
/// Of one sort, as many are told one by one in a minute; then it is said that there are more.
const PER_MINUTE: usize = 20;
/// What says that a job is itself a notice, about which nobody is called.
const LABEL: &str = "redrive.notice";
/// Where they wait: apart from other jobs, which may be many or paused.
pub(crate) const QUEUE: &str = "redrive.notices";

/// The queue of the notices; none where nobody is called, or where it is configured like any other.
pub(crate) fn queue(config: &Config) -> Option<Queue> {
    let is_called = config.notify.iter().any(|rule| matches!(rule.to, NoticeTo::Webhook { .. }));
    let is_written = config.queues.iter().any(|queue| queue.name == QUEUE);
    let default = config.queues.iter().find(|queue| queue.name == DEFAULT_QUEUE)?;
    (is_called && !is_written).then(|| Queue::new(QUEUE).policy(default.policy.clone()))
}

/// Looks for what there is to tell, for as long as it is run.
pub struct Notifier {
    engine: Engine,
    rules: Vec<Rule>,
    /// The URL under which others reach this server, if that is known.
    base: Option<String>,
    /// What was handed over from here, by its key, and when.
    seen: BTreeMap<String, Timestamp>,
    /// What was told, here or elsewhere, by its key, and when.
    told: BTreeMap<String, Timestamp>,
    /// Who has a place among those that are told one by one.
    rations: BTreeMap<Ration, BTreeSet<String>>,
    /// The newest line of the activity log at the last look.
    looked: Option<Timestamp>,
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
        let counting = Counting::start(&engine, &rules);
        Notifier {
            engine,
            rules,
            base: None,
            seen: BTreeMap::new(),
            told: BTreeMap::new(),
            rations: BTreeMap::new(),
            looked: None,
            heard: 0,
            rates: BTreeMap::new(),
            counting,
            down: BTreeMap::new(),
            gates: None,
        }
    }

    /// With the URL under which others reach this server, for the links in what is told.
    #[must_use]
    pub fn reached_at(self, base: Option<String>) -> Notifier {
        Notifier { base, ..self }
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
        self.jobs(now, tell).await?;
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
            self.told.insert(notice.key.clone(), notice.at);
            tell(notice);
        }
        Ok(())
    }

    /// The rules on this, by their places, of which this holds.
    fn rules_on(&self, on: NoticeOn, holds: impl Fn(&Rule) -> bool) -> Vec<usize> {
        let rules = self.rules.iter().enumerate();
        rules.filter(|(_, rule)| rule.on.contains(&on) && holds(rule)).map(|(place, _)| place).collect()
    }

    /// Hands a notice to whoever is called, then keeps it. In this order: if the process dies in between, it is handed
    /// over again, which the key of the call makes one.
    async fn deliver(
        &self,
        notice: &Notice,
        of: Option<&Job>,
        rules: &[usize],
        said: impl Fn(&Rule) -> String,
    ) -> Result<()> {
        let is_itself_one = of.is_some_and(|job| job.extras().labels.contains_key(LABEL));
        for place in rules.iter().filter(|_| !is_itself_one) {
            let rule = &self.rules[*place];
            if let NoticeTo::Webhook { url, endpoint } = &rule.to {
                let payload =
                    json!({ "method": "POST", "url": url, "body": self.body(notice, of, &said(rule)) });
                self.call(format!("notice/{place}/{}", notice.key), notice, payload, endpoint.as_deref())
                    .await?;
            }
        }
        if self.engine.notice(notice).await?.is_none() {
            return Ok(());
        }
        let rules = rules.iter().map(|place| &self.rules[*place]);
        for rule in rules.filter(|rule| rule.to == NoticeTo::Log) {
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

    /// What is sent to whoever is called.
    fn body(&self, notice: &Notice, of: Option<&Job>, message: &str) -> serde_json::Value {
        let base = self.base.as_deref().unwrap_or_default();
        json!({
            "type": format!("redrive.{}", notice.what),
            "timestamp": notice.at,
            "data": {
                "message": message, "rule": notice.rule, "job": notice.job,
                "kind": of.map(|job| &*job.kind), "queue": of.map(|job| &*job.queue),
                "log": notice.job.map(|job| format!("{base}/api/v1/jobs/{job}")),
            },
        })
    }

    async fn call(
        &self,
        key: String,
        notice: &Notice,
        mut payload: serde_json::Value,
        endpoint: Option<&str>,
    ) -> Result<()> {
        if let Some(endpoint) = endpoint {
            payload["endpoint"] = endpoint.into();
        }
        let host = payload["url"].as_str().and_then(|url| url::Url::parse(url).ok());
        let host = host.and_then(|url| url.host_str().map(str::to_owned));
        let Ok(payload) = Json::of(&payload) else { return Ok(()) };
        let mut job = NewJob::of_kind("http", payload).queue(QUEUE).label(LABEL, notice.what.clone());
        if let Some(host) = host {
            job = job.destination(host);
        }
        // The same for all who noticed it, however they word it.
        let call = Call { digest: key.clone(), key };
        self.engine.enqueue_once(call, [job]).await.map(drop)
    }
}
