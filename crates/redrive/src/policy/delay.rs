//! How long: the back-offs and the kinds of jitter, in whole milliseconds that saturate at [`span::MAX`].

use std::time::Duration;

use crate::clock::Rng;
use crate::span;

/// How delays grow.
#[derive(Clone, Debug, PartialEq)]
pub enum Backoff {
    /// No delay.
    Immediate,
    /// The same each time.
    Fixed {
        /// That delay.
        delay: Duration,
    },
    /// A step longer each time.
    Linear {
        /// The first delay.
        base: Duration,
        /// What each later one adds.
        step: Duration,
    },
    /// `factor` times longer each time.
    Exponential {
        /// The first delay, if `exponent_start` is 0.
        base: Duration,
        /// What each delay is multiplied by to give the next: 1 or more.
        factor: f64,
        /// Whether the first delay is `base · factor⁰` or `base · factor¹`.
        exponent_start: u32,
    },
    /// As the Fibonacci numbers 1, 1, 2, 3, 5, 8 …
    Fibonacci {
        /// What the numbers are multiplied by.
        base: Duration,
    },
    /// As listed.
    Schedule {
        /// The delays in order.
        delays: Vec<Duration>,
        /// What follows the last.
        then: Then,
    },
}

/// What follows the end of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Then {
    /// Its last delay, again and again.
    #[default]
    RepeatLast,
    /// Nothing: the job is given up.
    Stop,
}

impl Backoff {
    /// The nth delay, from 1; none past the end of a schedule that stops.
    pub(super) fn nth(&self, n: u32) -> Option<Duration> {
        let earlier = n.saturating_sub(1);
        let delay = match self {
            Backoff::Immediate => Duration::ZERO,
            Backoff::Fixed { delay } => *delay,
            Backoff::Linear { base, step } => base.saturating_add(step.saturating_mul(earlier)),
            Backoff::Exponential { base, factor, exponent_start } => {
                let exponent = earlier.saturating_add(*exponent_start);
                // A base of 0 stays 0: its product with infinity is not a number.
                if base.is_zero() {
                    Duration::ZERO
                } else {
                    from_ms(to_ms(*base) as f64 * power(*factor, exponent))
                }
            }
            Backoff::Fibonacci { base } => {
                Duration::from_millis(to_ms(*base).saturating_mul(fibonacci(n)).min(to_ms(span::MAX)))
            }
            Backoff::Schedule { delays, then } => {
                let listed = delays.get(usize::try_from(earlier).unwrap_or(usize::MAX));
                *listed.or_else(|| delays.last().filter(|_| *then == Then::RepeatLast))?
            }
        };
        Some(Duration::from_millis(to_ms(delay)).min(span::MAX))
    }

    /// How many delays there are, if they end.
    pub(super) fn length(&self) -> Option<u32> {
        match self {
            Backoff::Schedule { delays, then: Then::Stop } => {
                Some(u32::try_from(delays.len()).unwrap_or(u32::MAX))
            }
            _ => None,
        }
    }

    pub(super) const fn grows(&self) -> bool {
        matches!(self, Backoff::Linear { .. } | Backoff::Exponential { .. } | Backoff::Fibonacci { .. })
    }
}

/// How delays are spread.
#[derive(Clone, Debug, PartialEq)]
pub struct Jitter {
    /// The kind of spread.
    pub kind: JitterKind,
    /// Whether the first delay is exact: a single failure that comes right at once needs no spreading.
    pub skip_first: bool,
    /// How it stands to the cap.
    pub over_cap: OverCap,
}

/// Kinds of spread around a delay d.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JitterKind {
    /// d.
    None,
    /// Between d·(1 − ratio) and d·(1 + ratio).
    Ratio {
        /// From 0 to 1.
        ratio: f64,
    },
    /// Between d and d + max.
    Additive {
        /// What is added at most.
        max: Duration,
    },
    /// Between 0 and d.
    Full,
    /// Between d/2 and d.
    Equal,
    /// Between the first delay and three times the previous one, whatever d.
    Decorrelated,
}

/// How jitter stands to the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OverCap {
    /// The result is never above the cap; there, jitter goes downward by as much, so that it never vanishes.
    #[default]
    Within,
    /// The cap is for the delay before jitter; the result may be above it.
    Beyond,
}

impl Jitter {
    /// Delays exactly as the back-off says.
    pub const fn none() -> Jitter {
        Jitter::of(JitterKind::None)
    }

    /// Up to this ratio less or more: 0.1 is ± 10 %.
    pub const fn ratio(ratio: f64) -> Jitter {
        Jitter::of(JitterKind::Ratio { ratio })
    }

    /// Up to so much more.
    pub const fn additive(max: Duration) -> Jitter {
        Jitter::of(JitterKind::Additive { max })
    }

    /// Anything from nothing to the whole delay: the best spread.
    pub const fn full() -> Jitter {
        Jitter::of(JitterKind::Full)
    }

    /// At least half the delay.
    pub const fn equal() -> Jitter {
        Jitter::of(JitterKind::Equal)
    }

    /// Grown from the previous delay, so that two jobs soon have nothing in common.
    pub const fn decorrelated() -> Jitter {
        Jitter::of(JitterKind::Decorrelated)
    }

    /// The first delay is exact.
    #[must_use]
    pub const fn skip_first(mut self) -> Jitter {
        self.skip_first = true;
        self
    }

    /// The cap is for the delay before jitter.
    #[must_use]
    pub const fn beyond_cap(mut self) -> Jitter {
        self.over_cap = OverCap::Beyond;
        self
    }

    /// This kind, from the first delay on and within the cap.
    pub const fn of(kind: JitterKind) -> Jitter {
        Jitter { kind, skip_first: false, over_cap: OverCap::Within }
    }

    /// One draw around `base`, which is capped already. `first` is the policy's first delay.
    pub(super) fn spread(
        &self,
        base: Duration,
        first: Duration,
        previous: Option<Duration>,
        cap: Option<Duration>,
        rng: &mut Rng,
    ) -> Duration {
        let (base, first) = (to_ms(base), to_ms(first));
        let (low, high) = match self.kind {
            JitterKind::None => return Duration::from_millis(base),
            JitterKind::Ratio { ratio } => {
                let half = to_ms(from_ms(base as f64 * ratio));
                (base.saturating_sub(half), base.saturating_add(half))
            }
            JitterKind::Additive { max } => (base, base.saturating_add(to_ms(max))),
            JitterKind::Full => (0, base),
            JitterKind::Equal => (base / 2, base),
            JitterKind::Decorrelated => {
                let previous = previous.map_or(first, to_ms);
                (first, previous.saturating_mul(3).max(first))
            }
        };
        let ceiling = match self.over_cap {
            OverCap::Within => to_ms(cap.unwrap_or(span::MAX)),
            OverCap::Beyond => to_ms(span::MAX),
        };
        let width = high - low;
        let high = high.min(ceiling);
        // Decorrelated draws from a range that is wide by nature; the others keep their width below the ceiling.
        let low =
            if self.kind == JitterKind::Decorrelated { low.min(high) } else { high.saturating_sub(width) };
        Duration::from_millis(low + rng.up_to(high - low))
    }
}

/// Whole milliseconds, rounded up as due times are, at most [`span::MAX`].
pub(super) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.min(span::MAX).as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// To the nearest millisecond, from nothing to [`span::MAX`]; what is no number is an overflow.
fn from_ms(ms: f64) -> Duration {
    let max = to_ms(span::MAX);
    if ms.is_nan() || ms >= max as f64 {
        return span::MAX;
    }
    // Rounded, and in range: the cast is exact, and below zero it gives 0.
    Duration::from_millis(ms.round() as u64)
}

/// `factor` to the power of `exponent` by squaring: exact for whole factors, and the same on every machine, which
/// `powf` does not promise.
fn power(factor: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, factor, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

/// The nth Fibonacci number, from 1: 1, 1, 2, 3, 5. Saturates.
fn fibonacci(n: u32) -> u64 {
    let (mut current, mut next) = (1_u64, 1_u64);
    // The 93rd is the last that fits.
    for _ in 1..n.min(100) {
        (current, next) = (next, current.saturating_add(next));
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Rng;
    use crate::span::{days, hours, millis, mins, secs};
    use proptest::prelude::*;

    fn firsts(backoff: &Backoff, n: u32) -> Vec<Duration> {
        (1..=n).map_while(|nth| backoff.nth(nth)).collect()
    }

    #[test]
    fn each_backoff_grows_as_it_says() {
        let exponential =
            |factor, exponent_start| Backoff::Exponential { base: secs(1), factor, exponent_start };
        assert_eq!(firsts(&Backoff::Immediate, 3), [secs(0); 3]);
        assert_eq!(firsts(&Backoff::Fixed { delay: mins(5) }, 3), [mins(5); 3]);
        assert_eq!(firsts(&Backoff::Linear { base: secs(2), step: secs(3) }, 4), [2, 5, 8, 11].map(secs));
        assert_eq!(firsts(&exponential(2.0, 0), 4), [1, 2, 4, 8].map(secs));
        // S3-03.
        assert_eq!(firsts(&exponential(2.0, 1), 4), [2, 4, 8, 16].map(secs));
        assert_eq!(firsts(&exponential(1.5, 0), 4), [1000, 1500, 2250, 3375].map(millis));
        assert_eq!(firsts(&exponential(1.0, 0), 3), [secs(1); 3]);
        assert_eq!(firsts(&Backoff::Fibonacci { base: secs(1) }, 7), [1, 1, 2, 3, 5, 8, 13].map(secs));
        let list = |then| Backoff::Schedule { delays: vec![days(7), days(14)], then };
        assert_eq!(firsts(&list(Then::RepeatLast), 3), [days(7), days(14), days(14)]);
        assert_eq!(firsts(&list(Then::Stop), 3), [days(7), days(14)]);
    }

    #[test]
    fn nothing_overflows() {
        // S3-16, P40.
        let growing = [
            Backoff::Linear { base: secs(1), step: secs(1) },
            Backoff::Exponential { base: secs(1), factor: 2.0, exponent_start: 1 },
            Backoff::Exponential { base: secs(1), factor: f64::MAX, exponent_start: 0 },
            Backoff::Exponential { base: Duration::MAX, factor: 1.0, exponent_start: 0 },
            Backoff::Fibonacci { base: Duration::MAX },
            Backoff::Fixed { delay: Duration::MAX },
            Backoff::Exponential { base: secs(1), factor: f64::NAN, exponent_start: 0 },
        ];
        for backoff in growing {
            for n in [64, 310, 1200, u32::MAX - 1, u32::MAX] {
                let delay = backoff.nth(n).unwrap();
                assert!(delay <= span::MAX, "{backoff:?}");
                assert!(n < u32::MAX || delay == span::MAX, "{backoff:?}");
            }
        }
        let nothing = Backoff::Exponential { base: secs(0), factor: 2.0, exponent_start: 0 };
        assert_eq!(nothing.nth(u32::MAX), Some(Duration::ZERO));
    }

    fn bounds(jitter: &Jitter, base: Duration, cap: Option<Duration>) -> (Duration, Duration) {
        let mut rng = Rng::seeded(1);
        let draws: Vec<Duration> =
            (0..20_000).map(|_| jitter.spread(base, secs(1), Some(secs(4)), cap, &mut rng)).collect();
        let bound = |found: Option<&Duration>| found.copied().unwrap_or_default();
        (bound(draws.iter().min()), bound(draws.iter().max()))
    }

    fn near((low, high): (Duration, Duration), expected: (u64, u64)) {
        let (least, most) = (millis(expected.0), millis(expected.1));
        let slack = (most - least) / 100;
        assert!(low >= least && low <= least + slack, "{low:?} is not near {least:?}");
        assert!(high <= most && high >= most - slack, "{high:?} is not near {most:?}");
    }

    #[test]
    fn each_jitter_fills_its_range() {
        near(bounds(&Jitter::none(), secs(8), None), (8000, 8000));
        near(bounds(&Jitter::ratio(0.1), secs(8), None), (7200, 8800));
        near(bounds(&Jitter::additive(millis(500)), secs(8), None), (8000, 8500));
        near(bounds(&Jitter::full(), secs(8), None), (0, 8000));
        near(bounds(&Jitter::equal(), secs(8), None), (4000, 8000));
        near(bounds(&Jitter::decorrelated(), secs(8), None), (1000, 12_000));
    }

    #[test]
    fn at_the_cap_jitter_goes_downward_and_never_vanishes() {
        // P4.
        let cap = Some(secs(8));
        near(bounds(&Jitter::ratio(0.1), secs(8), cap), (6400, 8000));
        near(bounds(&Jitter::additive(millis(500)), secs(8), cap), (7500, 8000));
        near(bounds(&Jitter::decorrelated(), secs(8), cap), (1000, 8000));
        near(bounds(&Jitter::ratio(0.1).beyond_cap(), secs(8), cap), (7200, 8800));
        near(bounds(&Jitter::additive(millis(500)).beyond_cap(), secs(8), cap), (8000, 8500));
    }

    #[test]
    fn additive_jitter_is_even() {
        // S1-24.
        let mut rng = Rng::seeded(5);
        let mut extra =
            || Jitter::additive(millis(500)).spread(secs(1), secs(1), None, None, &mut rng) - secs(1);
        let draws: Vec<Duration> = (0..100).map(|_| extra()).collect();
        let mean = draws.iter().sum::<Duration>() / 100;
        assert!(draws.iter().all(|draw| *draw <= millis(500)));
        assert!(mean >= millis(200) && mean <= millis(300), "{mean:?}");
    }

    proptest! {
        #[test]
        fn delays_never_shrink(base in 1..100_000_u64, percent in 100..500_u32, n in 1..200_u32) {
            let factor = f64::from(percent) / 100.0;
            let backoff = Backoff::Exponential { base: millis(base), factor, exponent_start: 0 };
            prop_assert!(backoff.nth(n) <= backoff.nth(n + 1));
            prop_assert_eq!(backoff.nth(1), Some(millis(base)));
        }

        #[test]
        fn within_the_cap_means_within_the_cap(base in 0..100_000_u64, cap in 1..100_000_u64, seed: u64, ratio in 0.0..1.0) {
            let (base, cap) = (millis(base.min(cap)), millis(cap));
            let additive = Jitter::additive(millis(5000));
            for jitter in [Jitter::ratio(ratio), additive, Jitter::full(), Jitter::equal(), Jitter::decorrelated()] {
                let wait = jitter.spread(base, base, Some(hours(1)), Some(cap), &mut Rng::seeded(seed));
                prop_assert!(wait <= cap);
            }
        }
    }
}
