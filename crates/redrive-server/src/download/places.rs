//! Places that are taken and given back: whoever goes on with something comes before those who begin, so that what was
//! cut is finished first and not all at the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Who comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// It was under way before.
    GoesOn,
    Begins,
}

/// So many places, and those who wait for one.
pub(super) struct Places {
    line: Mutex<Line>,
}

struct Line {
    free: usize,
    withdrawn: usize,
    came: u64,
    waiting: BTreeMap<(Turn, u64), oneshot::Sender<Place>>,
}

/// One of them. Dropped, it goes to the next.
pub(super) struct Place(Option<Arc<Places>>);

impl Places {
    pub(super) fn new(count: usize) -> Arc<Places> {
        let line = Line { free: count, withdrawn: 0, came: 0, waiting: BTreeMap::new() };
        Arc::new(Places { line: Mutex::new(line) })
    }

    pub(super) async fn take(self: &Arc<Places>, turn: Turn) -> Place {
        let given = {
            let mut line = self.line();
            if line.free > 0 {
                line.free -= 1;
                return Place(Some(self.clone()));
            }
            let (reply, given) = oneshot::channel();
            line.came += 1;
            let came = line.came;
            line.waiting.insert((turn, came), reply);
            given
        };
        given.await.expect("whoever waits is kept in the line until a place is given")
    }

    /// A place that was withdrawn is there again.
    pub(super) fn restore(self: &Arc<Places>) {
        let mut line = self.line();
        if line.withdrawn > 0 {
            line.withdrawn -= 1;
            drop(line);
            self.give();
        }
    }

    /// Gives a place to the next who is still there.
    fn give(self: &Arc<Places>) {
        loop {
            let mut line = self.line();
            let Some((_, next)) = line.waiting.pop_first() else {
                line.free += 1;
                return;
            };
            drop(line);
            match next.send(Place(Some(self.clone()))) {
                Ok(()) => return,
                Err(mut place) => place.0 = None,
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Nobody gets it, until it is restored; but as many as these stay.
    pub(super) fn withdraw(mut self, of: usize) {
        let Some(places) = &self.0 else { return };
        let mut line = places.line();
        if line.withdrawn + 1 < of {
            line.withdrawn += 1;
            drop(line);
            self.0 = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.0.take() {
            places.give();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn whoever_goes_on_comes_before_those_who_begin_each_in_its_order() {
        let places = Places::new(1);
        let first = places.take(Turn::Begins).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for (name, turn) in [("b", Turn::Begins), ("c", Turn::Begins), ("a", Turn::GoesOn)] {
            let (places, order) = (places.clone(), order.clone());
            // Entered here, so that they stand in this order.
            let mut place = Box::pin(async move { places.take(turn).await });
            assert!((&mut place).now_or_never().is_none());
            waiting.spawn(async move {
                let place = place.await;
                order.lock().unwrap().push(name);
                drop(place);
            });
        }
        drop(first);
        waiting.join_all().await;
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c"]);
        assert!(places.take(Turn::Begins).now_or_never().is_some(), "it is free again");
    }

    #[tokio::test]
    async fn a_place_is_not_lost_with_whoever_waited_for_it() {
        let places = Places::new(1);
        let first = places.take(Turn::Begins).await;
        let mut gone = Box::pin(places.take(Turn::GoesOn));
        assert!((&mut gone).now_or_never().is_none());
        let mut given = Box::pin(places.take(Turn::GoesOn));
        assert!((&mut given).now_or_never().is_none());
        drop(gone);
        drop(first);
        // It has been given, and its taker goes away without looking.
        drop(given);
        assert!(places.take(Turn::Begins).now_or_never().is_some());
    }

    #[test]
    fn one_place_is_always_left_and_never_more_than_there_were() {
        let places = Places::new(3);
        let take = || places.take(Turn::Begins).now_or_never();
        for _ in 0..5 {
            take().expect("one is left").withdraw(3);
        }
        let only = take().expect("one is left");
        assert!(take().is_none());
        (0..5).for_each(|_| places.restore());
        let rest = (take().expect("it is back"), take().expect("it is back"));
        assert!(take().is_none());
        drop((only, rest));
    }
}
