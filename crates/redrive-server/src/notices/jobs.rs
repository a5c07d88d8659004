//! Jobs that came to need a person, and those that finished after all.
//!
//! A storm is not told drop by drop: of one sort, so many are told one by one in a minute, and then that there are more.
//! That is counted for each scope by itself, so that whoever asked for one queue hears of it whatever happens in another.

use redrive::{
    ACTIVITY_MAX, Activity, GiveUp, Job, JobDetail, Limit, Notice, Result, State, Timestamp, What,
};

use super::scope::Scope;
use super::{LINES, LOOK_BACK, Notifier, PER_MINUTE, REMEMBERED, Rule};
use crate::config::NoticeOn;

/// What is told one by one: of one sort, in one minute, to all who asked for the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ration {
    scope: Scope,
    what: &'static str,
    minute: i64,
}

impl Ration {
    /// The key of the notice that says that there are more. Once it is told, by whomever, nothing is told one by one.
    fn end(&self) -> String {
        format!("more:{}:{}{}", self.what, self.minute, self.scope)
    }
}

impl Notifier {
    pub(super) async fn jobs(&mut self, now: Timestamp, tell: &impl Fn(Notice)) -> Result<()> {
        let mut lines = self.lines(now).await?;
        self.destinations(&lines).await?;
        lines.retain(|line| {
            matches!(line.what, What::Dead | What::Recovered) && now.since(line.at) < LOOK_BACK
        });
        lines.reverse();
        self.forget(now);
        self.count_told(&lines);
        for line in &lines {
            let key = key_of(line);
            if self.seen.contains_key(&key) {
                continue;
            }
            let rations = self.rations_of(line);
            if rations.iter().any(|ration| self.has_room(ration)) {
                // Another server may have told of it, or of others, since.
                self.hear(tell).await?;
            }
            let mut scopes = Vec::new();
            for ration in rations {
                match self.take(&ration, &key) {
                    true => scopes.push(ration.scope),
                    false => self.more(&ration, line, now).await?,
                }
            }
            if !scopes.is_empty() {
                self.job(line, key, &scopes, now).await?;
            }
        }
        Ok(())
    }

    /// The newest lines of the activity log: as many as reach back to the last look.
    async fn lines(&mut self, now: Timestamp) -> Result<Vec<Activity>> {
        let back_to = self.looked.unwrap_or(now - LOOK_BACK);
        let mut lines = self.engine.activity(LINES).await?;
        if lines.len() == LINES && lines.last().is_some_and(|oldest| oldest.at >= back_to) {
            lines = self.engine.activity(usize::try_from(ACTIVITY_MAX).unwrap_or(LINES)).await?;
        }
        self.looked = lines.first().map(|newest| newest.at).or(self.looked);
        Ok(lines)
    }

    fn forget(&mut self, now: Timestamp) {
        self.seen.retain(|_, at| now.since(*at) < REMEMBERED);
        self.told.retain(|_, at| now.since(*at) < REMEMBERED);
        let oldest = minute_of(now - REMEMBERED);
        self.rations.retain(|ration, _| ration.minute >= oldest);
    }

    /// What was told before, here or elsewhere, has had its place.
    fn count_told(&mut self, lines: &[Activity]) {
        for line in lines {
            let key = key_of(line);
            if self.told.contains_key(&key) {
                for ration in self.rations_of(line) {
                    self.take(&ration, &key);
                }
            }
        }
    }

    /// One for each scope that somebody has asked for, and the one of the dashboards, which is everything.
    fn rations_of(&self, line: &Activity) -> Vec<Ration> {
        let wants = |rule: &&Rule| rule.on.contains(&on(line));
        let mut scopes: Vec<Scope> = self.rules.iter().filter(wants).map(Scope::of).collect();
        scopes.push(Scope::default());
        scopes.retain(|scope| scope.holds(&line.queue, &line.kind));
        scopes.sort();
        scopes.dedup();
        let (what, minute) = (line.what.as_str(), minute_of(line.at));
        scopes.into_iter().map(|scope| Ration { scope, what, minute }).collect()
    }

    fn has_room(&self, ration: &Ration) -> bool {
        self.rations.get(ration).is_none_or(|taken| taken.len() < PER_MINUTE)
            && !self.told.contains_key(&ration.end())
    }

    /// Takes a place in a ration, if there is one left or it has one.
    fn take(&mut self, ration: &Ration, key: &str) -> bool {
        let has_room = self.has_room(ration);
        let taken = self.rations.entry(ration.clone()).or_default();
        taken.contains(key) || has_room && taken.insert(key.to_owned())
    }

    async fn job(&mut self, line: &Activity, key: String, scopes: &[Scope], now: Timestamp) -> Result<()> {
        if let Some(detail) = self.engine.get(line.job).await? {
            let facts = Facts::of(&detail, line);
            let notice = Notice {
                key: key.clone(),
                at: line.at,
                rule: "jobs".into(),
                what: line.what.as_str().into(),
                job: Some(line.job),
                message: facts.say(facts.usual()),
            };
            let rules = self.rules_on(on(line), |rule| scopes.contains(&Scope::of(rule)));
            let said =
                |rule: &Rule| rule.text.as_deref().map_or(notice.message.clone(), |text| facts.say(text));
            self.deliver(&notice, Some(&detail.job), &rules, said).await?;
        }
        self.seen.insert(key, now);
        Ok(())
    }

    /// Says that there are more.
    async fn more(&mut self, ration: &Ration, line: &Activity, now: Timestamp) -> Result<()> {
        let key = ration.end();
        if self.seen.contains_key(&key) {
            return Ok(());
        }
        let (scope, what) = (
            &ration.scope,
            match line.what {
                What::Dead => "failed for good",
                _ => "completed after retries",
            },
        );
        let notice = Notice {
            key: key.clone(),
            at: line.at,
            rule: "jobs".into(),
            what: ration.what.into(),
            job: None,
            message: format!("More than {PER_MINUTE} operations{scope} {what} within a minute. See logs."),
        };
        let rules = self.rules_on(on(line), |rule| Scope::of(rule) == *scope);
        self.deliver(&notice, None, &rules, |_| notice.message.clone()).await?;
        self.told.insert(key.clone(), line.at);
        self.seen.insert(key, now);
        Ok(())
    }
}

/// The same for all who read this line.
fn key_of(line: &Activity) -> String {
    format!("{}:{}:{}", line.what.as_str(), line.job, line.at.as_millis())
}

fn on(line: &Activity) -> NoticeOn {
    if line.what == What::Dead { NoticeOn::Dead } else { NoticeOn::Recovered }
}

fn minute_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(60_000)
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
        match (self.what, self.retries) {
            (What::Dead, _) => "Operation '{operation_type}' failed after {retries} retries. See logs.",
            (_, 1) => "Operation '{operation_type}' completed after {retries} retry.",
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redrive::{
        Attempt, Clock, Engine, Failure, Filter, MemoryStore, NewJob, Page, Payload, Queue, Store, mins,
    };
    use serde::{Deserialize, Serialize};

    use super::super::QUEUE;
    use super::*;
    use crate::config::NoticeTo;

    #[derive(Serialize, Deserialize)]
    struct Doomed;
    impl Payload for Doomed {
        const KIND: &'static str = "doomed";
    }
    async fn fail(_: Attempt<Doomed>) -> std::result::Result<(), Failure> {
        Err(Failure::permanent("no such customer"))
    }

    /// Ten seconds into a minute.
    fn engine(store: Arc<dyn Store>) -> Engine {
        let clock = Clock::starting_at(Timestamp::from_millis(1_000_000 * 60_000 + 10_000));
        let queues = ["mail", QUEUE].map(Queue::new);
        let builder = Engine::on(store).clock(clock).produce_any().handle(fail);
        queues.into_iter().fold(builder, redrive::Builder::queue).build().unwrap()
    }

    async fn kill(engine: &Engine, queue: &str, count: usize) {
        for done in (0..count).step_by(500) {
            let jobs = (done..count.min(done + 500)).map(|_| NewJob::from(Doomed).queue(queue));
            engine.enqueue_all(jobs).await.unwrap();
        }
        engine.drain_due().await.unwrap();
    }

    async fn look(notifier: &mut Notifier) {
        let now = notifier.engine.now();
        notifier.hear(drop).await.unwrap();
        notifier.jobs(now, &drop).await.unwrap();
    }

    /// How many were told one by one, and what was said of the rest.
    async fn told(engine: &Engine) -> (usize, Vec<String>) {
        let notices = engine.notices(0, 1_000).await.unwrap();
        let (jobs, more): (Vec<_>, Vec<_>) =
            notices.into_iter().partition(|(_, notice)| notice.job.is_some());
        (jobs.len(), more.into_iter().map(|(_, notice)| notice.message).collect())
    }

    #[tokio::test]
    async fn twenty_of_a_storm_are_told_whoever_looks_and_however_often() {
        let engine = engine(Arc::new(MemoryStore::new()));
        let mut servers = [(); 2].map(|()| Notifier::new(engine.clone(), Vec::new()));
        kill(&engine, "default", 5).await;
        look(&mut servers[0]).await;
        for _ in 0..2 {
            kill(&engine, "default", LINES + 100).await;
            for server in &mut servers {
                look(server).await;
            }
        }
        // One that has just started.
        look(&mut Notifier::new(engine.clone(), Vec::new())).await;
        let more = "More than 20 operations failed for good within a minute. See logs.";
        assert_eq!(told(&engine).await, (20, vec![more.to_owned()]));
    }

    #[tokio::test]
    async fn who_asked_for_one_queue_is_told_of_it_whatever_happens_in_another() {
        let engine = engine(Arc::new(MemoryStore::new()));
        let rule = Rule {
            on: vec![NoticeOn::Dead],
            to: NoticeTo::Webhook { url: "https://a.example/".into(), endpoint: None },
            queue: Some("mail".into()),
            kind: None,
            rate: 0.2,
            window: mins(5),
            text: None,
        };
        let base = "https://jobs.example".to_owned();
        let mut notifier = Notifier::new(engine.clone(), vec![rule]).reached_at(Some(base));
        kill(&engine, "default", 30).await;
        look(&mut notifier).await;
        kill(&engine, "mail", 3).await;
        kill(&engine, "default", 2 * LINES).await;
        look(&mut notifier).await;
        let filter = Filter::default().in_queue(QUEUE);
        let calls = engine.list(&filter, Page { before: None, limit: 100 }).await.unwrap().jobs;
        let is_whole = |log: &serde_json::Value| {
            log.as_str().is_some_and(|log| log.starts_with("https://jobs.example/api/v1/jobs/"))
        };
        let is_of_mail = |job: &Job| {
            let payload: serde_json::Value = job.payload.decode().unwrap();
            let data = &payload["body"]["data"];
            is_whole(&data["log"])
                && data["queue"] == "mail"
                && data["message"] == "Operation 'doomed' failed after 0 retries. See logs."
        };
        assert!(calls.len() == 3 && calls.iter().all(is_of_mail), "{calls:#?}");
        assert_eq!(told(&engine).await.0, 23, "the dashboards hear of them too");
        kill(&engine, "mail", 30).await;
        look(&mut notifier).await;
        let more = "More than 20 operations in queue mail failed for good within a minute. See logs.";
        assert_eq!(told(&engine).await.1[1..], [more]);
        assert_eq!(engine.list(&filter, Page { before: None, limit: 100 }).await.unwrap().jobs.len(), 21);
    }
}
