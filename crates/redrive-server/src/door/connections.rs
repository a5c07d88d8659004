//! Who may be connected: a limit in total and one per address. When it is reached, somebody makes place who is not being
//! served, so that a crowd that only stands in the door locks nobody out. Who is unknown is never being served: whatever
//! may be had without a token is had at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::pulse::{Hold, Pulse};

/// Counts who is inside.
pub(super) struct Turnstile {
    total: usize,
    per_address: usize,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    last: u64,
    guests: BTreeMap<u64, Guest>,
    by_address: BTreeMap<IpAddr, usize>,
}

struct Guest {
    address: IpAddr,
    pulse: Arc<Pulse>,
    leave: Arc<Notify>,
}

impl Turnstile {
    pub(super) fn new(total: usize, per_address: usize) -> Arc<Turnstile> {
        Arc::new(Turnstile { total, per_address, inside: Mutex::default() })
    }

    /// A place for a connection, if need be that of another one on which nobody is being served; none if all are being
    /// served.
    pub(super) fn enter(self: &Arc<Turnstile>, from: IpAddr) -> Option<Pass> {
        let address = network_of(from);
        let mut inside = self.lock();
        if inside.by_address.get(&address).copied().unwrap_or(0) >= self.per_address {
            inside.send_away(|guest| guest.address == address)?;
        }
        if inside.guests.len() >= self.total {
            inside.send_away(|_| true)?;
        }
        inside.last += 1;
        let (number, pulse, leave) = (inside.last, Arc::<Pulse>::default(), Arc::<Notify>::default());
        inside.guests.insert(number, Guest { address, pulse: pulse.clone(), leave: leave.clone() });
        *inside.by_address.entry(address).or_default() += 1;
        drop(inside);
        Some(Pass { turnstile: self.clone(), number, pulse, leave })
    }

    /// Sends somebody away who is not being served, where the system has fewer places than the limit.
    pub(super) fn make_room(&self) {
        self.lock().send_away(|_| true);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// Of those with the loosest hold on their place, the one who came first: whoever has just come gets the time to
    /// show a token, however many others come.
    fn send_away(&mut self, among: impl Fn(&Guest) -> bool) -> Option<()> {
        let guests = self.guests.iter().filter(|(_, guest)| among(guest));
        let holds = guests.map(|(number, guest)| (guest.pulse.hold(), *number));
        let (_, number) = holds.filter(|(hold, _)| *hold != Hold::AtWork).min()?;
        self.remove(number)?.leave.notify_one();
        Some(())
    }

    fn remove(&mut self, number: u64) -> Option<Guest> {
        let guest = self.guests.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&guest.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&guest.address);
            }
        }
        Some(guest)
    }
}

/// A place inside; given up when dropped.
pub(super) struct Pass {
    turnstile: Arc<Turnstile>,
    number: u64,
    pub(super) pulse: Arc<Pulse>,
    /// Told when the place goes to another.
    pub(super) leave: Arc<Notify>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.turnstile.lock().remove(self.number);
    }
}

/// What counts as one address. Whoever has one IPv6 address has all of its /64.
pub(super) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::pulse::{Beat, Part};
    use std::net::Ipv4Addr;

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    fn was_sent_away(pass: &Pass) -> bool {
        !pass.turnstile.lock().guests.contains_key(&pass.number)
    }

    /// A request of somebody known that is being answered.
    fn served(pass: &Pass) -> Beat {
        let mut beat = pass.pulse.begin();
        beat.know();
        beat
    }

    #[test]
    fn the_oldest_without_a_request_makes_place_and_one_at_work_never_does() {
        let turnstile = Turnstile::new(3, 3);
        let busy = turnstile.enter(address(1)).unwrap();
        let _beat = served(&busy);
        let idle = turnstile.enter(address(2)).unwrap();
        drop(served(&idle));
        let silent = turnstile.enter(address(3)).unwrap();

        let newcomer = turnstile.enter(address(4)).unwrap();
        assert!(was_sent_away(&silent) && !was_sent_away(&idle) && !was_sent_away(&busy));
        let _working = served(&newcomer);
        let another = turnstile.enter(address(5)).unwrap();
        assert!(was_sent_away(&idle));
        let _too = served(&another);
        assert!(turnstile.enter(address(6)).is_none(), "all three are at work");
    }

    #[test]
    fn a_stranger_makes_place_while_it_is_answered_and_the_oldest_of_them_first() {
        let turnstile = Turnstile::new(3, 3);
        let idle = turnstile.enter(address(1)).unwrap();
        drop(served(&idle));
        let asking = turnstile.enter(address(2)).unwrap();
        let _beat = asking.pulse.begin();
        let silent = turnstile.enter(address(3)).unwrap();

        let _newcomer = turnstile.enter(address(4)).unwrap();
        assert!(was_sent_away(&asking) && !was_sent_away(&idle) && !was_sent_away(&silent));
    }

    #[test]
    fn whoever_does_not_take_an_answer_makes_place_first() {
        let turnstile = Turnstile::new(3, 3);
        let silent = turnstile.enter(address(1)).unwrap();
        let [stuck, slow] = [2, 3].map(|last| turnstile.enter(address(last)).unwrap());
        let mut beats = [served(&stuck), served(&slow)];
        for beat in &mut beats {
            beat.hold_back(Part::Piece);
        }
        stuck.pulse.set_stuck_for_long();

        let _newcomer = turnstile.enter(address(4)).unwrap();
        assert!(was_sent_away(&stuck) && !was_sent_away(&silent) && !was_sent_away(&slow));
    }

    #[test]
    fn one_address_fills_only_its_own_places() {
        let turnstile = Turnstile::new(10, 2);
        let first = turnstile.enter(address(1)).unwrap();
        let other = turnstile.enter(address(2)).unwrap();
        let _second = turnstile.enter(address(1)).unwrap();
        let _third = turnstile.enter(address(1)).unwrap();
        assert!(was_sent_away(&first) && !was_sent_away(&other));
    }

    #[test]
    fn whoever_leaves_is_no_longer_counted() {
        let turnstile = Turnstile::new(1, 1);
        for _ in 0..3 {
            let pass = turnstile.enter(address(1)).unwrap();
            let _beat = served(&pass);
            assert!(turnstile.enter(address(1)).is_none());
        }
        assert!(turnstile.lock().by_address.is_empty());
    }

    #[test]
    fn a_64_is_one_address_and_a_mapped_address_is_itself() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("::1"), "::1");
    }
}
