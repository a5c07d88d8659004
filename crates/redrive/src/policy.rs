//! When to try again and when to stop: data that is stored with the job, can be previewed, and decides.
//!
//! [`Policy::decide`] is all of it. The arithmetic of delays is in `policy/delay.rs`, the JSON in `policy/form.rs` and
//! `policy/workflow.rs`, the named policies in `policy/presets.rs`, the mistakes one can make in `policy/check.rs`.
//! Not here: sleeping, counting, or what a failure means.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::classify::{self, Rule, Verdict};
use crate::clock::Rng;
use crate::outcome::{Class, Failure};
use crate::span::{self, days, hours, secs};

mod check;
mod delay;
mod form;
mod meant;
mod presets;
mod reader;
mod workflow;

pub use delay::{Backoff, Jitter, JitterKind, OverCap, Then};
pub use meant::closest;

/// When to try again and when to stop.
///
/// ```
/// use redrive::{Policy, days, mins, secs};
///
/// let policy = Policy::exponential(secs(1)..=mins(15)).attempts(12).within(days(2));
/// assert_eq!(policy.preview(4), [secs(1), secs(2), secs(4), secs(8)]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// How the delays grow.
    pub backoff: Backoff,
    /// No delay before jitter is longer.
    pub cap: Option<Duration>,
    /// How delays are spread, so that what failed together does not return together.
    pub jitter: Jitter,
    /// How often at most.
    pub limit: Limit,
    /// No retry starts later than this after the job was created. See [`Policy::lifetime`].
    pub give_up_after: Option<Duration>,
    /// The job is worthless this long after it was created.
    pub deadline: Option<Duration>,
    /// The first attempt must start within this of the job's creation.
    pub start_by: Option<Duration>,
    /// Whether the time for which its destination holds a job counts toward these limits. Where it does not, they move by
    /// that time when the job is let go.
    pub held_counts: bool,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// What to do when the far side says when to return.
    pub retry_after: RetryAfter,
    /// Which failures are of which class, where this policy knows better than the built-in tables.
    pub rules: Vec<Rule>,
    /// The class of failures that no rule and no table knows.
    pub unknown: Class,
    /// This many lost leases make a job dead: it may be what kills its worker.
    pub max_crashes: u32,
    /// Whether people are notified when it gives up.
    pub notify: bool,
    /// The preset it came from, for people.
    pub name: Option<String>,
}

/// How often at most. Which of the two words is meant matters only for jobs that the engine runs from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Limit {
    /// So many executions inside the engine.
    Attempts(u32),
    /// So many executions after a failure.
    Retries(u32),
    /// As often as time allows.
    #[default]
    None,
}

/// What to do when the far side says when to return (`Retry-After`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    /// Whether to do as it asks. Its word replaces the back-off, never the limits.
    pub honour: bool,
    /// Wait at least this long, whatever it asks.
    pub min: Duration,
    /// Wait at most this long, whatever it asks.
    pub max: Duration,
}

impl Default for RetryAfter {
    fn default() -> RetryAfter {
        RetryAfter { honour: true, min: Duration::ZERO, max: hours(24) }
    }
}

/// Where a job's first failure happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Inside: the engine makes the first try, at once.
    #[default]
    Engine,
    /// Outside: the job exists because something failed, so every execution is a retry and waits its delay first.
    External,
}

/// What a policy needs to know to decide.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Ask {
    /// How often it failed inside the engine, this time included. A crash is not a failure.
    pub failures: u32,
    /// How often its lease was lost, this time included.
    pub crashes: u32,
    /// Where the first failure happened.
    pub origin: Origin,
    /// How long ago the job was created.
    pub age: Duration,
    /// How long the far side asked us to wait.
    pub retry_after: Option<Duration>,
    /// How long it waited last time: decorrelated jitter grows from there.
    pub previous: Option<Duration>,
}

/// A policy's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Try again after this.
    RetryIn(Delay),
    /// Stop, for this reason.
    GiveUp(GiveUp),
}

/// How long to wait, and how that came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// How long to wait.
    pub wait: Duration,
    /// What it was before jitter.
    pub base: Duration,
    /// Whether the far side asked for it.
    pub asked: bool,
}

/// Why a job is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GiveUp {
    /// It was tried as often as the policy allows.
    Exhausted,
    /// It would fail again.
    Permanent,
    /// Its time is over.
    Expired,
    /// It lost its lease too often: perhaps it kills its workers.
    CrashLoop,
    /// What is stored of it cannot be read.
    Corrupt,
}

impl GiveUp {
    const ALL: [GiveUp; 5] =
        [GiveUp::Exhausted, GiveUp::Permanent, GiveUp::Expired, GiveUp::CrashLoop, GiveUp::Corrupt];

    /// The word, as stores write it.
    pub fn as_str(self) -> &'static str {
        match self {
            GiveUp::Exhausted => "exhausted",
            GiveUp::Permanent => "permanent",
            GiveUp::Expired => "expired",
            GiveUp::CrashLoop => "crash_loop",
            GiveUp::Corrupt => "corrupt",
        }
    }

    /// Reads what [`GiveUp::as_str`] wrote.
    pub fn parse(word: &str) -> Option<GiveUp> {
        GiveUp::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

impl Policy {
    /// How long a policy that names no end goes on: nothing is retried for ever by accident.
    pub const LIFETIME_DEFAULT: Duration = days(3);

    /// Retry, and when; or give up, and why.
    pub fn decide(&self, ask: &Ask, rng: &mut Rng) -> Decision {
        if ask.crashes >= self.max_crashes.max(1) {
            return Decision::GiveUp(GiveUp::CrashLoop);
        }
        let outside = u32::from(ask.origin == Origin::External);
        if let Some(retries) = self.retries_allowed(ask.origin) {
            // A crash costs no retry, so it is not counted here.
            if ask.failures.saturating_add(outside) > retries {
                return Decision::GiveUp(GiveUp::Exhausted);
            }
        }
        let nth = ask.failures.saturating_add(ask.crashes).saturating_add(outside).max(1);
        let delay = self.asked_delay(ask, rng).unwrap_or_else(|| self.jittered(nth, ask.previous, rng));
        let end = [self.lifetime(), self.deadline].into_iter().flatten().min();
        match end {
            Some(end) if ask.age.saturating_add(delay.wait) > end => Decision::GiveUp(GiveUp::Expired),
            _ => Decision::RetryIn(delay),
        }
    }

    /// How long a job waits before its first run, if its first failure happened outside.
    pub fn first_delay(&self, rng: &mut Rng) -> Duration {
        self.first_delay_asked(None, rng).wait
    }

    /// The same where the far side may have asked for another time.
    pub(crate) fn first_delay_asked(&self, retry_after: Option<Duration>, rng: &mut Rng) -> Delay {
        let origin = Origin::External;
        let ask = Ask { failures: 0, crashes: 0, origin, age: Duration::ZERO, retry_after, previous: None };
        self.asked_delay(&ask, rng).unwrap_or_else(|| self.jittered(1, None, rng))
    }

    /// The nth delay (from 1) before jitter; none where a schedule has ended.
    pub fn delay_before_jitter(&self, n: u32) -> Option<Duration> {
        let delay = self.backoff.nth(n)?;
        Some(delay.min(self.cap.unwrap_or(span::MAX)))
    }

    /// The first `n` delays before jitter of a job that the engine runs from the start; fewer if the policy ends.
    pub fn preview(&self, n: usize) -> Vec<Duration> {
        let retries = self.retries_allowed(Origin::Engine).unwrap_or(u32::MAX);
        let end = self.lifetime().unwrap_or(Duration::MAX).min(self.deadline.unwrap_or(Duration::MAX));
        (1..=retries)
            .map_while(|nth| self.delay_before_jitter(nth))
            .scan(Duration::ZERO, |age, delay| {
                *age = age.saturating_add(delay);
                (*age <= end).then_some(delay)
            })
            .take(n)
            .collect()
    }

    /// How many executions may follow a failure; none if only time limits them.
    pub fn retries_allowed(&self, origin: Origin) -> Option<u32> {
        let counted = match (self.limit, origin) {
            (Limit::Retries(n), _) | (Limit::Attempts(n), Origin::External) => Some(n),
            (Limit::Attempts(n), Origin::Engine) => Some(n.saturating_sub(1)),
            (Limit::None, _) => None,
        };
        [counted, self.backoff.length()].into_iter().flatten().min()
    }

    /// How long after its creation a job's last retry may start: `give_up_after`, and where the policy names no end
    /// of any kind, [`Policy::LIFETIME_DEFAULT`].
    pub fn lifetime(&self) -> Option<Duration> {
        let has_an_end = self.deadline.is_some() || self.retries_allowed(Origin::Engine).is_some();
        self.give_up_after.or((!has_an_end).then_some(Policy::LIFETIME_DEFAULT))
    }

    /// The class of a failure under this policy, and which rule gave it: see [`classify::explain`].
    pub fn classify(&self, failure: &Failure) -> Verdict {
        classify::explain(failure, self)
    }

    /// Everything that is wrong with it, each with what to write instead.
    ///
    /// # Errors
    ///
    /// All mistakes together.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mistakes = check::mistakes(self);
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// From JSON: the name of a preset, our own form, or a workflow's `retry` block.
    ///
    /// # Errors
    ///
    /// All mistakes together, each with what to write instead.
    pub fn from_json(value: serde_json::Value) -> Result<Policy, Vec<String>> {
        form::read(value)
    }

    /// How long to wait of what the far side has asked for; nothing if it is not listened to.
    pub(crate) fn heeded(&self, asked: Duration) -> Option<Duration> {
        let RetryAfter { honour, min, max } = self.retry_after;
        honour.then(|| asked.max(min).min(max).min(span::MAX))
    }

    fn asked_delay(&self, ask: &Ask, rng: &mut Rng) -> Option<Delay> {
        let asked = ask.retry_after?;
        let (base, max) = (self.heeded(asked)?, self.retry_after.max);
        let spread = if self.jitter.kind == JitterKind::None { 0 } else { delay::to_ms(base) / 10 };
        // Upward only: nobody is served before the time they were told. Whoever asks for more than `max` is not
        // obeyed anyway, and there it goes downward, so that those who wait are spread all the same.
        let wait = if asked > base {
            base.saturating_sub(Duration::from_millis(rng.up_to(spread)))
        } else {
            let room = delay::to_ms(max.saturating_sub(base));
            base + Duration::from_millis(rng.up_to(spread.min(room)))
        };
        Some(Delay { wait, base, asked: true })
    }

    fn jittered(&self, nth: u32, previous: Option<Duration>, rng: &mut Rng) -> Delay {
        // Crashes lengthen the wait and not the list: past the end of a schedule that stops, its last delay holds.
        let last = self.backoff.length().unwrap_or(u32::MAX);
        let base = self.delay_before_jitter(nth.min(last).max(1)).unwrap_or(Duration::ZERO);
        let first = self.delay_before_jitter(1).unwrap_or(base);
        let wait = if nth == 1 && self.jitter.skip_first {
            base
        } else {
            self.jitter.spread(base, first, previous, self.cap, rng)
        };
        Delay { wait, base, asked: false }
    }
}

/// The product's default: from 1 s, doubling to an hour, full jitter from the second delay, for three days.
impl Default for Policy {
    fn default() -> Policy {
        Policy { give_up_after: Some(Policy::LIFETIME_DEFAULT), ..Policy::exponential(secs(1)..=hours(1)) }
    }
}

/// Building one: the back-off, then whatever differs from the default.
impl Policy {
    /// Doubles from the start of the range to its end.
    pub fn exponential(delays: RangeInclusive<Duration>) -> Policy {
        let (base, cap) = delays.into_inner();
        Policy::of(Backoff::Exponential { base, factor: 2.0, exponent_start: 0 }).cap(cap)
    }

    /// The same delay each time.
    pub fn fixed(delay: Duration) -> Policy {
        Policy::of(Backoff::Fixed { delay })
    }

    /// `base`, `base + step`, `base + 2·step` …
    pub fn linear(base: Duration, step: Duration) -> Policy {
        Policy::of(Backoff::Linear { base, step })
    }

    /// `base` times 1, 1, 2, 3, 5, 8 …
    pub fn fibonacci(base: Duration) -> Policy {
        Policy::of(Backoff::Fibonacci { base })
    }

    /// At once. Give it a limit.
    pub fn immediate() -> Policy {
        Policy::of(Backoff::Immediate)
    }

    /// These delays, and then the last of them again. Give it a limit, or [`Policy::then_stop`].
    pub fn schedule(delays: impl IntoIterator<Item = Duration>) -> Policy {
        Policy::of(Backoff::Schedule { delays: delays.into_iter().collect(), then: Then::RepeatLast })
    }

    /// A back-off with everything else as usual. What grows is spread by full jitter from the second delay; delays
    /// that somebody has spelled out are kept to the millisecond.
    pub fn of(backoff: Backoff) -> Policy {
        let jitter = if backoff.grows() { Jitter::full().skip_first() } else { Jitter::none() };
        Policy {
            backoff,
            cap: None,
            jitter,
            limit: Limit::None,
            give_up_after: None,
            deadline: None,
            start_by: None,
            held_counts: true,
            timeout: None,
            retry_after: RetryAfter::default(),
            rules: Vec::new(),
            unknown: Class::Transient,
            max_crashes: 3,
            notify: true,
            name: None,
        }
    }

    /// At most so many executions inside the engine.
    #[must_use]
    pub fn attempts(self, n: u32) -> Policy {
        Policy { limit: Limit::Attempts(n), ..self }
    }

    /// At most so many executions after a failure.
    #[must_use]
    pub fn retries(self, n: u32) -> Policy {
        Policy { limit: Limit::Retries(n), ..self }
    }

    /// No retry starts later than this after the job was created.
    #[must_use]
    pub fn within(self, limit: Duration) -> Policy {
        Policy { give_up_after: Some(limit), ..self }
    }

    /// The job is worthless this long after it was created.
    #[must_use]
    pub fn deadline(self, limit: Duration) -> Policy {
        Policy { deadline: Some(limit), ..self }
    }

    /// The first attempt must start within this of the job's creation.
    #[must_use]
    pub fn start_by(self, limit: Duration) -> Policy {
        Policy { start_by: Some(limit), ..self }
    }

    /// Time stands still for [`Policy::within`], [`Policy::deadline`] and [`Policy::start_by`] while its destination holds
    /// the job.
    #[must_use]
    pub fn except_while_held(self) -> Policy {
        Policy { held_counts: false, ..self }
    }

    /// How long one attempt may take.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Policy {
        Policy { timeout: Some(limit), ..self }
    }

    /// No delay before jitter is longer.
    #[must_use]
    pub fn cap(self, cap: Duration) -> Policy {
        Policy { cap: Some(cap), ..self }
    }

    /// How delays are spread.
    #[must_use]
    pub fn jitter(self, jitter: Jitter) -> Policy {
        Policy { jitter, ..self }
    }

    /// Delays exactly as the back-off says.
    #[must_use]
    pub fn no_jitter(self) -> Policy {
        self.jitter(Jitter::none())
    }

    /// A schedule ends with its list. Other back-offs have no list and stay as they are.
    #[must_use]
    pub fn then_stop(mut self) -> Policy {
        if let Backoff::Schedule { then, .. } = &mut self.backoff {
            *then = Then::Stop;
        }
        self
    }

    /// One more rule about classes.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Policy {
        self.rules.push(rule);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Rng;
    use crate::span::{millis, mins};
    use proptest::prelude::*;

    fn after_failures(failures: u32, origin: Origin) -> Ask {
        Ask { failures, origin, ..Ask::default() }
    }

    fn decide(policy: &Policy, ask: &Ask) -> Decision {
        policy.decide(ask, &mut Rng::seeded(7))
    }

    fn wait(policy: &Policy, ask: &Ask) -> Duration {
        match decide(policy, ask) {
            Decision::RetryIn(delay) => delay.wait,
            Decision::GiveUp(why) => panic!("{ask:?}: {why:?}"),
        }
    }

    /// Waits until it gives up, and why it does.
    fn run_out(policy: &Policy, origin: Origin) -> (Vec<Duration>, GiveUp) {
        let mut waits = Vec::new();
        if origin == Origin::External {
            waits.push(policy.first_delay(&mut Rng::seeded(7)));
        }
        for failures in 1.. {
            match decide(policy, &after_failures(failures, origin)) {
                Decision::RetryIn(delay) => waits.push(delay.wait),
                Decision::GiveUp(why) => return (waits, why),
            }
        }
        unreachable!("there are more failures than this")
    }

    #[test]
    fn retries_are_one_fewer_than_attempts_if_the_engine_ran_the_first() {
        let seconds = |n: u64| (0..n).map(|at| secs(1 << at)).collect::<Vec<_>>();
        let policy = Policy::exponential(secs(1)..=hours(1)).no_jitter();
        for (policy, origin, retries) in [
            (policy.clone().attempts(4), Origin::Engine, 3),
            (policy.clone().retries(4), Origin::Engine, 4),
            (policy.clone().attempts(4), Origin::External, 4),
            (policy.clone().retries(4), Origin::External, 4),
            (policy.clone().retries(0), Origin::Engine, 0),
            (policy.clone().attempts(1), Origin::Engine, 0),
        ] {
            assert_eq!(
                run_out(&policy, origin),
                (seconds(retries), GiveUp::Exhausted),
                "{:?} {origin:?}",
                policy.limit
            );
            assert_eq!(policy.retries_allowed(origin).map(u64::from), Some(retries));
        }
    }

    #[test]
    fn a_schedule_that_stops_gives_up_at_its_end() {
        let list = [secs(5), secs(9)];
        let stops = Policy::schedule(list).then_stop();
        assert_eq!(run_out(&stops, Origin::Engine), (list.to_vec(), GiveUp::Exhausted));
        assert_eq!(run_out(&stops, Origin::External), (list.to_vec(), GiveUp::Exhausted));
        let repeats = Policy::schedule(list).retries(4);
        assert_eq!(run_out(&repeats, Origin::Engine).0, [secs(5), secs(9), secs(9), secs(9)]);
        assert_eq!((stops.delay_before_jitter(3), repeats.delay_before_jitter(3)), (None, Some(secs(9))));
    }

    #[test]
    fn a_crash_lengthens_the_wait_and_costs_no_retry() {
        let policy = Policy::exponential(secs(1)..=hours(1)).no_jitter().retries(2);
        let crashed = |failures, crashes| Ask { failures, crashes, ..Ask::default() };
        assert_eq!(wait(&policy, &crashed(0, 1)), secs(1));
        assert_eq!(wait(&policy, &crashed(2, 1)), secs(4));
        assert_eq!(wait(&policy, &crashed(2, 2)), secs(8));
        assert_eq!(decide(&policy, &crashed(3, 2)), Decision::GiveUp(GiveUp::Exhausted));
        assert_eq!(decide(&policy, &crashed(0, 3)), Decision::GiveUp(GiveUp::CrashLoop));
        let stops = Policy::schedule([secs(5)]).then_stop();
        assert_eq!(wait(&stops, &crashed(1, 2)), secs(5));
    }

    #[test]
    fn a_retry_that_would_start_too_late_is_not_made() {
        let policy = Policy::fixed(mins(10)).within(hours(1));
        let aged = |age| Ask { age, ..after_failures(1, Origin::Engine) };
        assert_eq!(wait(&policy, &aged(mins(50))), mins(10));
        let late = aged(mins(50) + millis(1));
        assert_eq!(decide(&policy, &late), Decision::GiveUp(GiveUp::Expired));
        assert_eq!(
            decide(&Policy::fixed(mins(10)).deadline(hours(1)), &late),
            Decision::GiveUp(GiveUp::Expired)
        );
    }

    #[test]
    fn a_policy_that_names_no_end_has_one() {
        let endless = Policy::fixed(hours(24));
        assert_eq!(endless.lifetime(), Some(days(3)));
        assert_eq!(endless.preview(9), [hours(24); 3]);
        assert_eq!(endless.clone().retries(5).lifetime(), None);
        assert_eq!(endless.clone().deadline(days(9)).lifetime(), None);
        assert_eq!(endless.within(days(9)).lifetime(), Some(days(9)));
        assert_eq!(Policy::schedule([days(30)]).then_stop().lifetime(), None);
    }

    #[test]
    fn retry_after_replaces_the_backoff_and_not_the_limits() {
        let policy = Policy::fixed(mins(10)).retries(2);
        let asked =
            |failures, wait| Ask { retry_after: Some(wait), ..after_failures(failures, Origin::Engine) };
        let expected = Delay { wait: secs(3), base: secs(3), asked: true };
        assert_eq!(decide(&policy, &asked(1, secs(3))), Decision::RetryIn(expected));
        assert_eq!(decide(&policy, &asked(3, secs(3))), Decision::GiveUp(GiveUp::Exhausted));
        assert_eq!(wait(&policy, &asked(1, days(30))), hours(24));
        let mut bounded = policy.clone();
        bounded.retry_after = RetryAfter { honour: true, min: secs(5), max: secs(9) };
        assert_eq!(wait(&bounded, &asked(1, secs(3))), secs(5));
        assert_eq!(wait(&bounded, &asked(1, secs(30))), secs(9));
        bounded.retry_after.honour = false;
        assert_eq!(wait(&bounded, &asked(1, secs(3))), mins(10));
        let short = Policy::fixed(secs(1)).within(mins(1));
        assert_eq!(decide(&short, &asked(1, mins(2))), Decision::GiveUp(GiveUp::Expired));
    }

    #[test]
    fn the_default_is_the_documented_one() {
        let policy = Policy::default();
        assert_eq!(policy.preview(5), [1, 2, 4, 8, 16].map(secs));
        assert_eq!(policy.delay_before_jitter(99), Some(hours(1)));
        assert_eq!(policy.jitter, Jitter::full().skip_first());
        assert_eq!((policy.give_up_after, policy.limit, policy.max_crashes), (Some(days(3)), Limit::None, 3));
        assert_eq!(policy.validate(), Ok(()));
    }

    #[test]
    fn origins_and_reasons_have_the_words_of_the_api() {
        assert_eq!(serde_json::to_string(&Origin::External).unwrap(), r#""external""#);
        assert_eq!(serde_json::to_string(&GiveUp::CrashLoop).unwrap(), r#""crash_loop""#);
    }

    proptest! {
        #[test]
        fn no_question_makes_it_panic_or_wait_beyond_the_ceiling(
            failures: u32, crashes in 0..3_u32, external: bool, age_ms: u64, seed: u64,
            asked in prop::option::of(any::<u64>()), previous in prop::option::of(any::<u64>()),
            factor in 1.0..50.0, base_ms in 0..u64::MAX,
        ) {
            let origin = if external { Origin::External } else { Origin::Engine };
            let ask = Ask {
                failures, crashes, origin, age: millis(age_ms),
                retry_after: asked.map(millis), previous: previous.map(millis),
            };
            let backoff = Backoff::Exponential { base: millis(base_ms), factor, exponent_start: 1 };
            let policy = Policy::of(backoff).jitter(Jitter::decorrelated()).within(Duration::MAX);
            match policy.decide(&ask, &mut Rng::seeded(seed)) {
                Decision::RetryIn(delay) => prop_assert!(delay.wait <= span::MAX),
                Decision::GiveUp(why) => prop_assert!(false, "{:?}", why),
            }
        }

        #[test]
        fn retry_after_is_never_undercut_and_spreads_by_a_tenth(asked_ms in 0..86_400_000_u64, seed: u64) {
            let ask = Ask { retry_after: Some(millis(asked_ms)), ..after_failures(1, Origin::Engine) };
            let Decision::RetryIn(delay) = Policy::default().decide(&ask, &mut Rng::seeded(seed)) else {
                return Err(TestCaseError::fail("gave up"));
            };
            prop_assert!(delay.wait >= millis(asked_ms) && delay.wait <= millis(asked_ms + asked_ms / 10));
            prop_assert!(delay.wait <= hours(24));
        }

        #[test]
        fn a_preview_is_what_will_happen(retries in 0..9_u32, base in 1..9_u64) {
            let policy = Policy::exponential(secs(base)..=mins(1)).no_jitter().retries(retries);
            prop_assert_eq!(run_out(&policy, Origin::Engine).0, policy.preview(99));
        }
    }
}
