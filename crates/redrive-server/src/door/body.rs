//! A request's body: read whole before a route sees it, within its limit and at a pace, so that no route waits for a
//! client, and every refusal has the same form. Bodies that are in memory at once share a room, so that they are refused
//! before the memory is used up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header;
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::refusal::Refusal;

/// So much must arrive in each [`PACE`]: whoever sends less only holds a place.
const PACE_BYTES: usize = 1_000;
/// How long that may take.
pub(super) const PACE: Duration = Duration::from_secs(10);
/// How much of a body that is too long is still taken, and for how long: a client that writes before it reads would
/// otherwise see a broken connection instead of the reason.
const DISCARD_BYTES: usize = 8 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// How deep JSON may be nested. What people write is not; what is written against parsers is.
pub(crate) const JSON_DEPTH_MAX: usize = 64;

/// How long a body of [`TIME_BYTES`] may take: 18 kB/s, which is less than any uplink has. Where bodies may be longer, they
/// have as many times that.
const TIME: Duration = Duration::from_secs(60);
const TIME_BYTES: usize = 1 << 20;
/// What somebody may send who is not known yet: a token takes a hundred bytes.
const SIGN_IN_BYTES: usize = 4 << 10;
/// How long that may take. No typing is waited for, and until it has come, nobody in particular has the place.
const SIGN_IN_TIME: Duration = Duration::from_secs(10);
/// How many bytes of bodies are in memory at once: those of 64 clients that send as much as they may.
pub(super) const ROOM_BYTES: usize = 64 << 20;
/// How long a body waits for room: a burst of others has come by then, and no client has given up yet.
const ROOM_WAIT: Duration = Duration::from_secs(2);
/// What every body may have without room, as a head may. Most are not longer: whoever fills the room, with large ones or
/// slow ones, holds up nobody's heartbeat.
const FREE_BYTES: usize = 4 << 10;
/// So many of the longest bodies there may be have room at once, however long they may be.
const LONGEST_AT_ONCE: usize = 4;

/// How long a body may take that may be so long.
pub(super) fn time(bytes: usize) -> Duration {
    TIME * u32::try_from(bytes.div_ceil(TIME_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// On what terms a body is read.
pub(super) struct Terms<'a> {
    /// How long it may be.
    bytes: usize,
    /// How long the next [`PACE_BYTES`], or its end, may take.
    pace: Duration,
    /// How long all of it may take.
    time: Duration,
    /// What to do about a longer one.
    hint: &'static str,
    sender: Sender<'a>,
}

/// Who sends it.
#[derive(Clone, Copy)]
pub(super) enum Sender<'a> {
    /// Somebody known: it is counted, and taken for a while even if it is too long.
    Known(&'a Room),
    /// Anybody: nothing is owed them.
    Stranger,
}

impl<'a> Terms<'a> {
    /// Where a body may be as long as bodies may be.
    pub(super) fn whole(bytes: usize, pace: Duration, time: Duration, sender: Sender<'a>) -> Terms<'a> {
        let hint = "send less at once, or raise limits.body_bytes in the config";
        Terms { bytes, pace, time, hint, sender }
    }

    /// Where a token is shown.
    pub(super) fn sign_in(self) -> Terms<'a> {
        let (bytes, time) = (self.bytes.min(SIGN_IN_BYTES), self.time.min(SIGN_IN_TIME));
        Terms { bytes, time, hint: "send {\"token\": \"rdv_…\"} and nothing else", ..self }
    }

    /// Where none is needed. Even to see that an empty one ends may take a moment.
    pub(super) fn none(self) -> Terms<'a> {
        Terms { bytes: 0, hint: "send the request without one", ..self.sign_in() }
    }

    fn too_large(&self) -> Refusal {
        let message = match self.bytes {
            0 => "no body is taken here".to_owned(),
            bytes => format!("the body is larger than {bytes} bytes"),
        };
        Refusal::new(413, "RETRY_TOO_LARGE", message).hint(self.hint)
    }

    /// Takes what is left of a body that is too long.
    async fn discard(&self, body: impl Body<Data = Bytes> + Unpin) {
        match self.sender {
            Sender::Known(_) => discard(body).await,
            Sender::Stranger => {}
        }
    }
}

/// The whole body.
pub(super) async fn read(
    head: &Parts,
    body: impl Body<Data = Bytes> + Unpin,
    terms: Terms<'_>,
) -> Result<Bytes, Refusal> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let announced = body.size_hint().exact();
    if announced.is_some_and(|announced| announced > terms.bytes as u64) {
        // Whoever asks first has not sent it yet.
        if !head.headers.contains_key(header::EXPECT) {
            terms.discard(body).await;
        }
        return Err(terms.too_large());
    }
    let announced = announced.and_then(|announced| usize::try_from(announced).ok());
    let most = announced.unwrap_or(terms.bytes);
    let mut coming =
        Coming { body, next: Bytes::new(), got: Vec::with_capacity(most.min(FREE_BYTES)), most, room: None };
    let is_whole = {
        let mut reading = pin!(coming.read_at_pace(&terms));
        // What has come already needs no timer.
        match reading.as_mut().now_or_never() {
            Some(is_whole) => is_whole?,
            None => timeout(terms.time, reading).await.unwrap_or_else(|_| Err(too_long(terms.time)))?,
        }
    };
    let Coming { body, got, room, .. } = coming;
    if !is_whole {
        drop((got, room));
        terms.discard(body).await;
        return Err(terms.too_large());
    }
    check_depth(head, &got)?;
    Ok(match room {
        None => got.into(),
        Some(room) => Bytes::from_owner(Counted { bytes: got, _room: room }),
    })
}

/// A body that is being read.
struct Coming<B> {
    body: B,
    /// What has come and finds no room yet.
    next: Bytes,
    got: Vec<u8>,
    /// How long it may become.
    most: usize,
    /// For all of `got`, beyond what is free.
    room: Option<OwnedSemaphorePermit>,
}

impl<B: Body<Data = Bytes> + Unpin> Coming<B> {
    /// Whether that was all of it; it was not if it is too long.
    async fn read_at_pace(&mut self, terms: &Terms<'_>) -> Result<bool, Refusal> {
        loop {
            let progress = match self.advance(terms).now_or_never() {
                Some(progress) => progress?,
                None => timeout(terms.pace, self.advance(terms))
                    .await
                    .unwrap_or_else(|_| Err(too_slow(terms.pace)))?,
            };
            match progress {
                Progress::Some => {}
                Progress::End => return Ok(true),
                Progress::TooMuch => return Ok(false),
            }
        }
    }

    /// Reads until the pace is met, or the end. Nothing is lost when it is dropped before.
    async fn advance(&mut self, terms: &Terms<'_>) -> Result<Progress, Refusal> {
        let goal = self.got.len() + PACE_BYTES;
        while self.got.len() < goal {
            if self.next.is_empty() {
                let Some(frame) = self.body.frame().await else { return Ok(Progress::End) };
                self.next = frame.map_err(|_| cut_off())?.into_data().unwrap_or_default();
            }
            let length = self.got.len() + self.next.len();
            if length > self.most {
                return Ok(Progress::TooMuch);
            }
            if length > self.got.capacity() {
                self.grow(length, terms).await?;
            }
            self.got.extend_from_slice(&self.next);
            self.next.clear();
        }
        Ok(Progress::Some)
    }

    /// To this length, or twice of what there is. Only what has come takes room: who announces much and sends little holds
    /// nobody up.
    async fn grow(&mut self, length: usize, terms: &Terms<'_>) -> Result<(), Refusal> {
        let capacity = length.max(2 * self.got.capacity()).min(self.most);
        if let Sender::Known(room) = terms.sender {
            let has = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = room.take(capacity.saturating_sub(FREE_BYTES + has)).await?;
            match &mut self.room {
                Some(room) => room.merge(more),
                None => self.room = Some(more),
            }
        }
        self.got.reserve_exact(capacity - self.got.len());
        Ok(())
    }
}

/// A second one on a connection, of somebody unknown.
pub(super) fn one_at_a_time() -> Refusal {
    busy("another body of somebody unknown is being read on this connection")
        .hint("come back in a second, or send a token with the request")
}

fn cut_off() -> Refusal {
    Refusal::new(400, "RETRY_INVALID", "the body ended before it was complete").hint("send it again")
}

fn busy(message: &str) -> Refusal {
    Refusal::new(503, "RETRY_BUSY", message).retry_after(Duration::from_secs(1))
}

fn too_slow(pace: Duration) -> Refusal {
    Refusal::new(408, "RETRY_TOO_SLOW", "the body comes too slowly")
        .hint(format!("send at least {PACE_BYTES} bytes in {}", redrive::span::format(pace)))
}

fn too_long(time: Duration) -> Refusal {
    Refusal::new(408, "RETRY_TOO_SLOW", "the body takes too long")
        .hint(format!("send all of it within {}, or less at once", redrive::span::format(time)))
}

/// The room that bodies share, in bytes.
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    /// For so many bytes, and never less than a few bodies may have.
    pub(super) fn new(bytes: usize, body_bytes: usize) -> Room {
        let bytes = bytes.max(body_bytes.saturating_mul(LONGEST_AT_ONCE)).min(Semaphore::MAX_PERMITS);
        Room(Arc::new(Semaphore::new(bytes)))
    }

    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let full = || {
            busy("the server has no room for another body at the moment")
                .hint("come back in a second, or send less at once")
        };
        let bytes = u32::try_from(bytes).map_err(|_| full())?;
        match timeout(ROOM_WAIT, self.0.clone().acquire_many_owned(bytes)).await {
            Ok(Ok(room)) => Ok(room),
            // Nobody closes it.
            Ok(Err(_)) | Err(_) => Err(full()),
        }
    }
}

/// A body that takes room until nobody has it any more.
struct Counted {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

enum Progress {
    Some,
    End,
    TooMuch,
}

async fn discard(mut body: impl Body<Data = Bytes> + Unpin) {
    let all = async {
        let mut left = DISCARD_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whether it came to its end or not, nothing more is owed.
    drop(timeout(DISCARD_TIME, all).await);
}

fn check_depth(head: &Parts, body: &[u8]) -> Result<(), Refusal> {
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.contains("json") || !is_too_deep(body) {
        return Ok(());
    }
    Err(Refusal::new(422, "RETRY_INVALID", format!("the JSON is nested deeper than {JSON_DEPTH_MAX} levels"))
        .hint("flatten it, or send the inner part as a text"))
}

/// Whether brackets are open at once beyond what is allowed. Most bodies have fewer of them altogether, which is found out
/// in a fraction of the time.
pub(crate) fn is_too_deep(body: &[u8]) -> bool {
    // The two brackets differ in one bit; and what fits into a byte is counted many bytes at a time.
    let openings = |part: &[u8]| part.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    let openings: usize = body.chunks(255).map(|part| usize::from(openings(part))).sum();
    openings > JSON_DEPTH_MAX && json_depth(body) > JSON_DEPTH_MAX
}

/// How many brackets are open at once, outside of texts. Whether it is JSON at all is the parser's question.
fn json_depth(body: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0_usize, 0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::{Full, StreamBody};
    use hyper::body::{Frame, SizeHint};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn depth_is_counted_outside_of_texts() {
        for (json, depth) in [
            ("", 0),
            ("1", 0),
            ("[]", 1),
            ("[{},{}]", 2),
            (r#"{"a":[1,{"b":2}]}"#, 3),
            (r#"["[[[","\"[[[","\\",[]]"#, 2),
            ("]]][", 1),
            (r#"{"a": ["{[{[", "\"{", []]}"#, 3),
        ] {
            assert_eq!(json_depth(json.as_bytes()), depth, "{json}");
        }
        assert_eq!(json_depth("[".repeat(100_000).as_bytes()), 100_000);
    }

    #[test]
    fn many_brackets_are_only_too_deep_within_each_other() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(!is_too_deep(nested(JSON_DEPTH_MAX).as_bytes()));
        assert!(is_too_deep(nested(JSON_DEPTH_MAX + 1).as_bytes()));
        assert!(is_too_deep((" ".repeat(250) + &nested(300)).as_bytes()));
        assert!(!is_too_deep(format!("[{}1]", "[],".repeat(1_000)).as_bytes()));
    }

    /// A body that comes piece by piece, as the test sends it.
    fn coming() -> (mpsc::UnboundedSender<Vec<u8>>, impl Body<Data = Bytes> + Unpin) {
        let (sender, receiver) = mpsc::unbounded_channel::<Vec<u8>>();
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let piece = receiver.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(piece))), receiver))
        });
        (sender, StreamBody::new(Box::pin(frames)))
    }

    /// A body with the length that was announced.
    struct Announced<B>(B, Option<u64>);

    impl<B: Body + Unpin> Body for Announced<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }

        fn size_hint(&self) -> SizeHint {
            self.1.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    fn head() -> Parts {
        http::Request::new(()).into_parts().0
    }

    const LIMIT: usize = 100_000;

    fn terms(room: &Room) -> Terms<'_> {
        Terms::whole(LIMIT, PACE, time(LIMIT), Sender::Known(room))
    }

    async fn read_whole(room: &Room, length: usize) -> Result<Bytes, Refusal> {
        read(&head(), Full::from(vec![b'x'; length]), terms(room)).await
    }

    const ROOM: usize = LONGEST_AT_ONCE * LIMIT;

    fn taken(room: &Room) -> usize {
        ROOM - room.0.available_permits()
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_for_a_body_waits_a_moment_and_is_told_to_come_back() {
        let room = Room::new(ROOM, LIMIT);
        let large = futures_util::future::join_all((0..LONGEST_AT_ONCE).map(|_| read_whole(&room, LIMIT)));
        let mut large: Vec<Bytes> = large.await.into_iter().collect::<Result<_, _>>().unwrap();
        let refusal = read_whole(&room, LIMIT).await.unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.code), (503, "RETRY_BUSY"));
        assert!(refusal.retry_after.is_some() && refusal.hint.is_some());
        assert_eq!(read_whole(&room, FREE_BYTES).await.unwrap().len(), FREE_BYTES, "a short one needs none");

        let first = large.pop().unwrap();
        let copy = first.clone();
        drop(first);
        assert!(read_whole(&room, LIMIT).await.is_err(), "somebody still has it");
        let (another, ()) = tokio::join!(read_whole(&room, LIMIT), async { drop(copy) });
        assert_eq!(another.unwrap().len(), LIMIT, "it waited until there was room");
        drop(large);
        assert_eq!(taken(&room), 0, "and all is well when they have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_bodies_have_room_however_little_there_is() {
        let room = Room::new(10, LIMIT);
        assert_eq!(room.0.available_permits(), ROOM);
        let bodies = [read_whole(&room, LIMIT).await.unwrap(), read_whole(&room, LIMIT).await.unwrap()];
        assert!(bodies.iter().all(|body| body.len() == LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_takes_room_as_it_comes() {
        for (length, announced) in [(LIMIT, false), (FREE_BYTES + 1, true)] {
            let room = Room::new(ROOM, LIMIT);
            let (sender, body) = coming();
            let body = Announced(body, announced.then_some(length as u64));
            let head = head();
            let mut reading = pin!(read(&head, body, terms(&room)));
            assert!(reading.as_mut().now_or_never().is_none());
            sender.send(vec![b'x'; FREE_BYTES]).unwrap();
            assert!(reading.as_mut().now_or_never().is_none());
            assert_eq!(taken(&room), 0, "nothing for what was only announced");
            sender.send(vec![b'x'; length - FREE_BYTES]).unwrap();
            drop(sender);
            let body = reading.await.unwrap();
            assert_eq!((body.len(), taken(&room)), (length, length - FREE_BYTES));
            drop(body);
            assert_eq!(taken(&room), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_ends_badly_gives_its_room_back() {
        let room = Room::new(ROOM, LIMIT);
        let (sender, body) = coming();
        sender.send(vec![b'x'; LIMIT]).unwrap();
        sender.send(vec![b'x'; 1]).unwrap();
        assert_eq!(read(&head(), body, terms(&room)).await.unwrap_err().code, "RETRY_TOO_LARGE");
        let (_sender, body) = coming();
        assert_eq!(read(&head(), body, terms(&room)).await.unwrap_err().code, "RETRY_TOO_SLOW");
        assert_eq!(taken(&room), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_keeps_its_pace_has_a_time_for_all_of_it() {
        let room = Room::new(ROOM, LIMIT);
        let (sender, body) = coming();
        let drip = async {
            let mut ticks = tokio::time::interval(PACE / 2);
            while sender.send(vec![b'x'; PACE_BYTES]).is_ok() {
                ticks.tick().await;
            }
        };
        let head = head();
        let reading = async move { read(&head, body, terms(&room)).await };
        let refusal =
            tokio::select! { read = reading => read.unwrap_err(), () = drip => panic!("nobody read it") };
        assert_eq!((refusal.code, refusal.message.as_str()), ("RETRY_TOO_SLOW", "the body takes too long"));
        assert_eq!(refusal.hint.unwrap(), "send all of it within 1m, or less at once");
    }

    #[test]
    fn where_bodies_may_be_longer_they_may_take_longer() {
        assert_eq!([1, TIME_BYTES, 64 * TIME_BYTES].map(time), [TIME, TIME, 64 * TIME]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_refused_what_is_not_needed_without_its_being_read() {
        for (terms, bytes) in [
            (Terms::whole(LIMIT, PACE, TIME, Sender::Stranger).sign_in(), SIGN_IN_BYTES),
            (Terms::whole(LIMIT, PACE, TIME, Sender::Stranger).none(), 0),
        ] {
            let announced = Full::from(vec![b'x'; bytes + 1]);
            let refusal = read(&head(), announced, terms).now_or_never().unwrap().unwrap_err();
            assert_eq!((refusal.status.as_u16(), refusal.code), (413, "RETRY_TOO_LARGE"), "{refusal:?}");
            assert!(!refusal.hint.unwrap().contains("limits.body_bytes"), "more is never taken");
        }
    }
}
