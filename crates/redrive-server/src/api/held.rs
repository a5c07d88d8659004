//! What a job waits for when that is its destination: why it takes nothing now, until when, how many go before, and
//! whether it will be in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use redrive::{Filter, Job, Page, Reason, State, StateName, Timestamp, Why, span};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::destinations::{DestinationView, Standing};
use super::limits::in_force;
use crate::door::Refusal;

/// Jobs ahead are counted up to this: whoever waits behind more knows enough.
const AHEAD_MAX: usize = 1_000;

/// A job in the line of its destination.
pub(super) struct Held {
    pub(super) destination: DestinationView,
    /// Jobs that go before it.
    pub(super) ahead: usize,
    /// What it answered when it was shut.
    shut_by: Option<u16>,
}

impl Held {
    /// Nothing if the job waits for something else: its time, or a free place.
    pub(super) async fn of(api: &Api, job: &Job, now: Timestamp) -> Result<Option<Held>, Refusal> {
        let (Some(name), State::Waiting { due_at, reason }) = (&job.extras().destination, &job.state) else {
            return Ok(None);
        };
        let known = api.engine().destinations().await?;
        let Some(known) = known.iter().find(|known| known.name == *name) else { return Ok(None) };
        let (rules, _) = in_force(api).await?;
        let destination = DestinationView::of(known, &rules, now);
        let is_its_turn = *due_at <= now || *reason == Reason::Held;
        if !is_its_turn || destination.state == Standing::Open && destination.held == 0 {
            return Ok(None);
        }
        let ahead = ahead_of(api, job, name).await?;
        Ok(Some(Held { destination, ahead, shut_by: known.gate.shut_by() }))
    }

    /// When its destination takes jobs again, as far as that is known.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.destination.until.or(self.destination.probe_at)
    }

    /// Calls per second that go once it is open: what it was seen to bear, which says little where there was little to
    /// do, and never more than it may.
    fn pace(&self) -> Option<f64> {
        let limit = self.destination.limits.rate.as_ref().and_then(|rate| rate.parse::<redrive::Rate>().ok());
        let limit = limit.map(redrive::Rate::as_per_second);
        let learned = self.destination.level_per_second.or(self.destination.learned.bears_per_second);
        let learned = learned.map(|pace| pace.max(1.0));
        match (limit, learned) {
            (Some(limit), Some(learned)) => Some(limit.min(learned)),
            (limit, learned) => limit.or(learned),
        }
    }

    /// When it is likely to start. A destination that is down, or that somebody has stopped, comes back when it does.
    pub(super) fn starts_at(&self, now: Timestamp) -> Option<Timestamp> {
        let from = match (self.destination.state, self.destination.reason) {
            (Standing::Open | Standing::Ramp, _) => now,
            (Standing::Shut, Some(Why::RetryAfter)) => self.destination.until?,
            _ => return None,
        };
        let pace = self.pace().filter(|pace| *pace > 0.0)?;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let behind = Duration::try_from_secs_f64(self.ahead as f64 / pace).ok()?;
        Some(from + behind)
    }

    /// In a sentence.
    pub(super) fn say(&self, job: &Job, now: Timestamp) -> String {
        let mut parts = vec![format!("{} {}", self.destination.name, self.standing(now))];
        parts.extend(self.pace().map(|pace| match self.destination.state {
            Standing::Ramp => format!("{pace}/s by now"),
            _ => format!("then {pace}/s"),
        }));
        parts.push(match self.ahead {
            0 => "next in line".to_owned(),
            AHEAD_MAX.. => format!("{AHEAD_MAX} or more ahead"),
            ahead => format!("{ahead} ahead"),
        });
        let waited = match &job.state {
            State::Waiting { due_at, .. } => span::format(coarse(now.since(*due_at))),
            _ => String::new(),
        };
        let line = format!("waiting {waited}: {}", parts.join(", "));
        match self.in_time(job, now) {
            Some(in_time) => format!("{line}; {in_time}"),
            None => line,
        }
    }

    fn standing(&self, now: Timestamp) -> String {
        let at = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
        let DestinationView { state, reason, until, probe_at, .. } = &self.destination;
        match (state, reason) {
            (Standing::Paused, _) => "is paused until somebody resumes it".into(),
            (Standing::Shut, Some(Why::RetryAfter)) => match self.shut_by {
                Some(status) => format!("shut by {status} until {}", at(*until)),
                None => format!("asked for a pause until {}", at(*until)),
            },
            (Standing::Shut, Some(Why::Said)) => "is said to be down, until it is said to be up".into(),
            (Standing::Shut, Some(Why::Credential)) => {
                "does not accept its credential, until that is renewed".into()
            }
            (Standing::Shut, _) if probe_at.is_some_and(|probe| probe > now) => {
                let status =
                    self.shut_by.map(|status| format!(" (it answered {status})")).unwrap_or_default();
                format!("is down{status}, and is asked again at {}", at(*probe_at))
            }
            (Standing::Shut | Standing::Probing, _) => {
                "is down, and is being asked whether it is back".into()
            }
            (Standing::Ramp, _) => "is back and takes more with every success".into(),
            (Standing::Open, _) => "takes no more at once than it may".into(),
        }
    }

    fn in_time(&self, job: &Job, now: Timestamp) -> Option<String> {
        let (what, limit) = match (job.deadline(), job.start_by()) {
            (Some(deadline), Some(start_by)) if start_by < deadline => ("has to start", start_by),
            (Some(deadline), _) => ("deadline", deadline),
            (None, Some(start_by)) => ("has to start", start_by),
            (None, None) => return None,
        };
        if !job.policy.held_counts {
            let left = span::format(coarse(limit.since(job.due_at())));
            return Some(format!("{what} {left} after it is let go: this time does not count"));
        }
        let left = format!("{what} in {}", span::format(coarse(limit.since(now))));
        Some(match self.starts_at(now) {
            Some(starts_at) if starts_at < limit => format!("{left}, will make it"),
            Some(_) => format!("{left}, will not make it"),
            None => format!("{left}, will make it if it is back by then"),
        })
    }
}

/// How many of a destination's jobs came in before this one. What was put in together has the same time, and is told apart
/// by its ids, which count on.
async fn ahead_of(api: &Api, job: &Job, destination: &str) -> Result<usize, Refusal> {
    let of = |from: Option<Timestamp>, until: Timestamp| Filter {
        destination: Some(destination.to_owned()),
        states: vec![StateName::Waiting],
        created_from: from,
        created_until: Some(until),
        ..Filter::default()
    };
    let engine = api.engine();
    let older = engine.count(&of(None, job.created_at), AHEAD_MAX).await?;
    if older == AHEAD_MAX {
        return Ok(older);
    }
    let with_it = of(Some(job.created_at), job.created_at + Duration::from_millis(1));
    let with_it = engine.list(&with_it, Page { before: None, limit: AHEAD_MAX }).await?;
    let before = with_it.jobs.iter().filter(|other| other.id < job.id).count();
    Ok((older + before).min(AHEAD_MAX))
}

/// What keeps a job back although it is due.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeldBack {
    /// `destination`, `queue`, or `store` if everything is held.
    #[schema(example = "destination")]
    by: &'static str,
    /// Its name; empty for everything.
    name: String,
    /// How it stands: `paused`, or what a destination does: `shut`, `probing`, `ramp` or `open` at its limit.
    #[schema(value_type = String, example = "shut")]
    state: Standing,
    /// Why a destination is shut.
    #[schema(value_type = Option<String>, example = "retry_after")]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Why>,
    /// When it takes jobs again.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// When it is asked whether it is back.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_at: Option<Timestamp>,
}

/// Everything that keeps jobs back at a time: asked once for a whole list.
pub(super) struct Holders {
    store: bool,
    queues: BTreeSet<Arc<str>>,
    destinations: BTreeMap<String, DestinationView>,
}

impl Holders {
    pub(super) async fn now(api: &Api, now: Timestamp) -> Result<Holders, Refusal> {
        let (rules, _) = in_force(api).await?;
        let counts = api.engine().counts().await?;
        let known = api.engine().destinations().await?;
        let views = known.iter().map(|known| DestinationView::of(known, &rules, now));
        let holding = views.filter(|view| view.state != Standing::Open || view.held > 0);
        Ok(Holders {
            store: api.engine().is_held().await?,
            queues: counts.into_iter().filter(|queue| queue.paused).map(|queue| queue.queue).collect(),
            destinations: holding.map(|view| (view.name.clone(), view)).collect(),
        })
    }

    /// What keeps this one back.
    pub(super) fn of(&self, job: &Job, now: Timestamp) -> Option<HeldBack> {
        let State::Waiting { due_at, reason } = &job.state else { return None };
        if *due_at > now && *reason != Reason::Held {
            return None;
        }
        let paused = |by, name: &str| HeldBack {
            by,
            name: name.to_owned(),
            state: Standing::Paused,
            reason: None,
            until: None,
            probe_at: None,
        };
        if self.store {
            return Some(paused("store", ""));
        }
        if self.queues.contains(&job.queue) {
            return Some(paused("queue", &job.queue));
        }
        let view = self.destinations.get(&**job.extras().destination.as_ref()?)?;
        let DestinationView { name, state, reason, until, probe_at, .. } = view;
        let (name, state) = (name.clone(), *state);
        Some(HeldBack { by: "destination", name, state, reason: *reason, until: *until, probe_at: *probe_at })
    }
}

/// Nobody minds the milliseconds of an hour.
pub(super) fn coarse(span: Duration) -> Duration {
    Duration::from_secs(match span.as_secs() {
        seconds @ 0..3_600 => seconds,
        seconds @ 3_600..86_400 => seconds / 60 * 60,
        seconds => seconds / 3_600 * 3_600,
    })
}
