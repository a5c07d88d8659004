//! How often somebody may be wrong about a token: a leaky bucket for each address, and one for all together; and how often
//! a session may be begun, with one for each token. Pure: time comes in as an argument.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use redrive::Timestamp;

use super::connections::network_of;

/// Wrong tokens that an address may send at once, and how many it may send a minute for long.
const ADDRESS: Rate = Rate { burst: 10.0, per_second: 10.0 / 60.0 };
/// The same for everybody together.
const GLOBAL: Rate = Rate { burst: 1_000.0, per_second: 50.0 };
/// Sessions that may be begun with one token at once, and a minute for long: each is written to the audit log, and would
/// drive out of it what people did.
const SESSIONS: Rate = Rate { burst: 10.0, per_second: 10.0 / 60.0 };
/// Addresses that are remembered; beyond that, the one that has been right longest is forgotten.
const ADDRESSES_MAX: usize = 10_000;

struct Rate {
    burst: f64,
    per_second: f64,
}

/// Fills with each event and leaks with time.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    level: f64,
    at: Timestamp,
}

impl Bucket {
    fn level(self, rate: &Rate, now: Timestamp) -> f64 {
        (self.level - now.since(self.at).as_secs_f64() * rate.per_second).max(0.0)
    }

    fn add(&mut self, rate: &Rate, now: Timestamp) {
        *self = Bucket { level: (self.level(rate, now) + 1.0).min(rate.burst + 1.0), at: now.max(self.at) };
    }

    /// How long until there is room for one more; none if there is.
    fn wait(self, rate: &Rate, now: Timestamp) -> Option<Duration> {
        let over = self.level(rate, now) + 1.0 - rate.burst;
        (over > 0.0).then(|| Duration::from_secs_f64(over / rate.per_second))
    }
}

/// Who has been wrong how often.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    addresses: BTreeMap<IpAddr, Bucket>,
    all: Bucket,
    /// By the token's key id.
    sessions: BTreeMap<String, Bucket>,
}

impl Throttle {
    /// A token from this address was wrong.
    pub(super) fn failed(&mut self, from: IpAddr, now: Timestamp) {
        let address = network_of(from);
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&address) {
            let least = |(_, bucket): &(&IpAddr, &Bucket)| bucket.level(&ADDRESS, now);
            let forget = self
                .addresses
                .iter()
                .min_by(|a, b| least(a).total_cmp(&least(b)))
                .map(|(address, _)| *address);
            forget.map(|address| self.addresses.remove(&address));
        }
        self.addresses.entry(address).or_default().add(&ADDRESS, now);
        self.all.add(&GLOBAL, now);
    }

    /// How long this address has to wait before it may be wrong again. Whoever has not been wrong lately never waits,
    /// whatever the others do.
    pub(super) fn wait(&self, from: IpAddr, now: Timestamp) -> Option<Duration> {
        let bucket = self.addresses.get(&network_of(from))?;
        let shared = if bucket.level(&ADDRESS, now) > 0.0 { self.all.wait(&GLOBAL, now) } else { None };
        bucket.wait(&ADDRESS, now).max(shared)
    }

    /// A session is begun with this token.
    ///
    /// # Errors
    ///
    /// How long to wait, where too many were begun lately.
    pub(super) fn begin_session(&mut self, key_id: &str, now: Timestamp) -> Result<(), Duration> {
        // Whoever has not signed in lately is forgotten, so there are never more than there are tokens in use.
        self.sessions.retain(|_, bucket| bucket.level(&SESSIONS, now) > 0.0);
        let bucket = self.sessions.entry(key_id.to_owned()).or_default();
        match bucket.wait(&SESSIONS, now) {
            Some(wait) => Err(wait),
            None => {
                bucket.add(&SESSIONS, now);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n))
    }

    #[test]
    fn an_address_waits_after_ten_mistakes_and_another_does_not() {
        let (mut throttle, now) = (Throttle::default(), Timestamp::from_millis(1_000_000));
        for _ in 0..10 {
            assert_eq!(throttle.wait(address(1), now), None);
            throttle.failed(address(1), now);
        }
        let wait = throttle.wait(address(1), now).unwrap();
        assert_eq!(wait.as_secs(), 6);
        assert_eq!(throttle.wait(address(2), now), None);
        assert_eq!(throttle.wait(address(1), now + wait), None, "and after the wait it may try once more");
        throttle.failed(address(1), now + wait);
        assert!(throttle.wait(address(1), now + wait).is_some());
    }

    #[test]
    fn many_addresses_together_are_throttled_and_one_that_was_never_wrong_is_not() {
        let (mut throttle, now) = (Throttle::default(), Timestamp::from_millis(1_000_000));
        for n in 0..1_000 {
            throttle.failed(address(n), now);
        }
        assert!(throttle.wait(address(5), now).is_some());
        assert_eq!(throttle.wait(address(5_000), now), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut throttle, now) = (Throttle::default(), Timestamp::from_millis(1_000_000));
        for n in 0..12_000 {
            throttle.failed(address(n), now + Duration::from_millis(n.into()));
        }
        assert_eq!(throttle.addresses.len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_token_begins_ten_sessions_and_waits_while_another_does_not() {
        let (mut throttle, now) = (Throttle::default(), Timestamp::from_millis(1_000_000));
        let begun = (0..50).filter(|_| throttle.begin_session("a", now).is_ok()).count();
        assert_eq!(begun, 10);
        let wait = throttle.begin_session("a", now).unwrap_err();
        assert_eq!(wait.as_secs(), 6);
        assert_eq!(throttle.begin_session("b", now), Ok(()));
        assert_eq!(throttle.begin_session("a", now + wait), Ok(()), "and after the wait it may once more");
        throttle.begin_session("c", now + redrive::mins(10)).unwrap();
        assert_eq!(throttle.sessions.keys().collect::<Vec<_>>(), ["c"]);
    }
}
