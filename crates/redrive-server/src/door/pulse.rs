//! What a connection is doing: whether somebody known asks for something on it, and whether its client takes what it is
//! answered. Not here: what follows from that. [`connections`](super::connections) decides whose place goes to another,
//! and [`stream`](super::stream) whose patience has run out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a connection is doing.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Requests whose head has arrived,
    begun: AtomicUsize,
    /// those of them that are not answered yet,
    in_flight: AtomicUsize,
    /// and of these, the ones of somebody known that do not wait for their client to take a piece of the answer.
    at_work: AtomicUsize,
    /// Pieces of answers that wait for their client to make room for them, and how many no longer do.
    held_back: AtomicUsize,
    taken: AtomicUsize,
    /// Whether it has been so for long, with no piece taken.
    stuck_for_long: AtomicBool,
    /// The socket takes no more of what is written; and has not for long.
    unsent: AtomicBool,
    unsent_for_long: AtomicBool,
    /// Somebody known has asked for something.
    is_known: AtomicBool,
    /// A body of somebody unknown is being read.
    reads_for_a_stranger: AtomicBool,
}

/// How firmly a connection has its place, loosest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// Its client has not taken what it was sent for long.
    Stalled,
    /// Nobody known has asked for anything yet. Whatever is asked meanwhile is answered at once, or slowly on purpose.
    Unknown,
    /// Somebody known, between two requests.
    Idle,
    /// Somebody known is being served.
    AtWork,
}

impl Pulse {
    pub(super) fn hold(&self) -> Hold {
        let is_unsent = self.unsent.load(Ordering::Acquire);
        let stalled_socket = is_unsent && self.unsent_for_long.load(Ordering::Acquire);
        let is_some = |count: &AtomicUsize| count.load(Ordering::Acquire) > 0;
        if stalled_socket || (is_some(&self.held_back) && !is_some(&self.at_work) && self.is_stuck_for_long())
        {
            Hold::Stalled
        } else if !self.is_known.load(Ordering::Acquire) {
            Hold::Unknown
        } else if is_unsent || is_some(&self.at_work) || is_some(&self.held_back) {
            Hold::AtWork
        } else {
            Hold::Idle
        }
    }

    /// Whether a request is being answered, or the client has yet to take an answer.
    pub(super) fn is_answering(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0 || self.unsent.load(Ordering::Acquire)
    }

    /// Whether something waits until the client makes room for a piece of an answer. What is asked for besides does not
    /// count: it could be asked for again and again.
    pub(super) fn is_stuck(&self) -> bool {
        self.held_back.load(Ordering::Acquire) > 0
    }

    /// Whether that was said to be so for long, and no piece was taken since.
    pub(super) fn is_stuck_for_long(&self) -> bool {
        self.stuck_for_long.load(Ordering::Acquire)
    }

    pub(super) fn set_stuck_for_long(&self) {
        self.stuck_for_long.store(true, Ordering::Release);
    }

    /// How many pieces of answers the client has made room for.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether something is left to be sent.
    pub(super) fn set_unsent(&self, unsent: bool) {
        self.unsent.store(unsent, Ordering::Release);
        if !unsent {
            self.unsent_for_long.store(false, Ordering::Release);
        }
    }

    pub(super) fn set_unsent_for_long(&self) {
        self.unsent_for_long.store(true, Ordering::Release);
    }

    /// How many requests there have been.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    /// A request's head has arrived; it is answered when what this returns is dropped.
    pub(super) fn begin(self: &Arc<Pulse>) -> Beat {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::AcqRel);
        Beat { pulse: self.clone(), is_known: false, held_back: None }
    }
}

/// A request under way.
pub(super) struct Beat {
    pulse: Arc<Pulse>,
    /// Who sent it is known, and may be served.
    is_known: bool,
    /// What of its answer waits for the client.
    held_back: Option<Part>,
}

/// A part of an answer over HTTP/2.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Part {
    /// Which is always let go. It would be no news that a client takes one: it could ask for one after another.
    Head,
    /// Which is let go when the client allows it.
    Piece,
}

impl Beat {
    /// Who sent it is known.
    pub(super) fn know(&mut self) {
        if !self.is_known {
            self.is_known = true;
            self.pulse.is_known.store(true, Ordering::Release);
            self.pulse.at_work.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Something of its answer is ready, and is to be sent as soon as the client lets us.
    pub(super) fn hold_back(&mut self, part: Part) {
        if self.held_back.replace(part).is_none() {
            self.pulse.held_back.fetch_add(1, Ordering::AcqRel);
            if self.is_known {
                self.pulse.at_work.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// The client has let us.
    pub(super) fn take(&mut self) {
        let Some(part) = self.held_back.take() else { return };
        if part == Part::Piece {
            self.pulse.taken.fetch_add(1, Ordering::AcqRel);
            self.pulse.stuck_for_long.store(false, Ordering::Release);
        }
        if self.is_known {
            self.pulse.at_work.fetch_add(1, Ordering::AcqRel);
        }
        self.pulse.held_back.fetch_sub(1, Ordering::AcqRel);
    }

    /// The right to have a body read without being known. One request of a connection has it at a time, so that what
    /// strangers send takes no more memory than their connections do.
    pub(super) fn read_for_a_stranger(&self) -> Option<Turn<'_>> {
        let is_taken = self.pulse.reads_for_a_stranger.swap(true, Ordering::AcqRel);
        (!is_taken).then(|| Turn(&self.pulse.reads_for_a_stranger))
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.take();
        if self.is_known {
            self.pulse.at_work.fetch_sub(1, Ordering::AcqRel);
        }
        self.pulse.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Given back when dropped.
pub(super) struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_works_for_whom_it_knows_until_it_waits_for_them() {
        let pulse = Arc::<Pulse>::default();
        let mut first = pulse.begin();
        assert!(pulse.is_answering() && pulse.hold() == Hold::Unknown);
        first.know();
        first.know();
        assert_eq!(pulse.hold(), Hold::AtWork);
        let mut second = pulse.begin();
        second.know();

        first.hold_back(Part::Piece);
        assert!(pulse.is_stuck() && pulse.hold() == Hold::AtWork, "most clients only need a moment");
        pulse.set_stuck_for_long();
        assert_eq!(pulse.hold(), Hold::AtWork, "the second is still being answered");
        second.hold_back(Part::Piece);
        assert_eq!(pulse.hold(), Hold::Stalled);
        second.take();
        assert!(!pulse.is_stuck_for_long() && pulse.taken() == 1 && pulse.hold() == Hold::AtWork);

        drop((first, second));
        assert!(!pulse.is_answering() && !pulse.is_stuck() && pulse.hold() == Hold::Idle);
    }

    #[test]
    fn what_a_stranger_asks_for_besides_does_not_keep_a_stuck_connection() {
        let pulse = Arc::<Pulse>::default();
        let mut stuck = pulse.begin();
        stuck.hold_back(Part::Piece);
        let mut another = pulse.begin();
        assert!(pulse.is_stuck());
        another.hold_back(Part::Head);
        drop(another);
        assert!(pulse.is_stuck() && pulse.taken() == 0, "an answer of no bytes is not held back");
    }

    #[test]
    fn a_socket_that_takes_nothing_is_stalled_until_it_takes_something() {
        let pulse = Arc::<Pulse>::default();
        pulse.begin().know();
        pulse.set_unsent(true);
        assert_eq!(pulse.hold(), Hold::AtWork);
        pulse.set_unsent_for_long();
        assert_eq!(pulse.hold(), Hold::Stalled);
        pulse.set_unsent(false);
        assert_eq!(pulse.hold(), Hold::Idle);
        pulse.set_unsent(true);
        assert_eq!(pulse.hold(), Hold::AtWork, "the time begins anew");
    }

    #[test]
    fn a_connection_has_one_body_of_a_stranger_at_a_time() {
        let pulse = Arc::<Pulse>::default();
        let (one, other) = (pulse.begin(), pulse.begin());
        let turn = one.read_for_a_stranger();
        assert!(turn.is_some() && other.read_for_a_stranger().is_none());
        drop(turn);
        assert!(other.read_for_a_stranger().is_some());
    }
}
