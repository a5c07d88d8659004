//! A client's socket with its patience: how long a head may take, how long it may be quiet between requests, and how
//! long it may refuse to take an answer, be it that its socket is full or that HTTP/2 lets nothing of it go.
//!
//! hyper's own timer for heads is not used: it also runs between requests, where patience is another, and not at all
//! while the first bytes are looked at to tell HTTP/1 from HTTP/2.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::pulse::Pulse;
use crate::socket::Socket;

/// How the preface of HTTP/2 begins. No method of HTTP/1 does.
const HTTP2: &[u8] = b"PRI ";
/// A client that has not taken what it was sent for so long makes place as soon as another needs one. No round trip takes
/// as long.
const STALLED: Duration = Duration::from_secs(5);

pub(super) struct PatientStream {
    socket: Socket,
    pulse: Arc<Pulse>,
    head: Duration,
    idle: Duration,
    reading: Timer<Waiting>,
    writing: Timer<Unsent>,
    speaks: Option<Version>,
    /// After how many requests the next one has begun to arrive.
    arriving_after: usize,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq)]
enum Waiting {
    /// The rest of a head, after so many requests.
    Head(usize),
    /// The next request, after so many.
    Next(usize),
    /// Nothing: an answer is under way. Looked at again, since nobody says when it has ended.
    Answer,
    /// That the client makes room for a piece of an answer, after so many.
    Taking(usize),
    /// The same, for longer than [`STALLED`].
    Stalled(usize),
}

/// Since when the socket takes nothing.
#[derive(Clone, Copy)]
enum Unsent {
    Just,
    ForLong,
}

impl Waiting {
    /// Whether a timer that was set for this has to be set anew for the other. A busy connection would otherwise set
    /// one for each request; as it is, it is set again when it has run out and something has happened since, and a
    /// quiet connection is closed after one to two times its patience.
    fn is_another_than(self, set_for: Waiting) -> bool {
        match (self, set_for) {
            (Waiting::Head(now), Waiting::Head(then)) => now != then,
            (Waiting::Head(_), _) | (_, Waiting::Head(_)) => true,
            // Soon, it makes a difference.
            (Waiting::Taking(_), Waiting::Next(_) | Waiting::Answer | Waiting::Stalled(_)) => true,
            _ => false,
        }
    }
}

#[derive(PartialEq)]
enum Version {
    One,
    Two,
}

impl PatientStream {
    pub(super) fn new(socket: Socket, pulse: Arc<Pulse>, head: Duration, idle: Duration) -> PatientStream {
        let (reading, writing) = (Timer::new(), Timer::new());
        PatientStream { socket, pulse, head, idle, reading, writing, speaks: None, arriving_after: 0 }
    }

    fn waiting(&self) -> Waiting {
        let begun = self.pulse.begun();
        if self.pulse.is_stuck() {
            let taken = self.pulse.taken();
            if self.pulse.is_stuck_for_long() { Waiting::Stalled(taken) } else { Waiting::Taking(taken) }
        } else if self.pulse.is_answering() {
            Waiting::Answer
        } else if begun == self.arriving_after {
            Waiting::Head(begun)
        } else {
            Waiting::Next(begun)
        }
    }

    fn patience(&self, waiting: Waiting) -> Duration {
        match waiting {
            Waiting::Head(_) => self.head,
            Waiting::Next(_) | Waiting::Answer => self.idle,
            Waiting::Taking(_) => self.stalled(),
            Waiting::Stalled(_) => self.idle - self.stalled(),
        }
    }

    /// After how long a client counts as stalled; never later than its patience ends.
    fn stalled(&self) -> Duration {
        STALLED.min(self.idle)
    }

    fn heard(&mut self, bytes: &[u8]) {
        if self.speaks.is_none() {
            let is_two = bytes.starts_with(&HTTP2[..HTTP2.len().min(bytes.len())]);
            self.speaks = Some(if is_two { Version::Two } else { Version::One });
        }
        // What comes over HTTP/2 between requests need not be one.
        if self.speaks == Some(Version::One) && !self.pulse.is_answering() {
            self.arriving_after = self.pulse.begun();
        }
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(cx, buf) {
            if buf.filled().len() > before {
                self.heard(&buf.filled()[before..]);
            }
            return Poll::Ready(read);
        }
        let mut waiting = self.waiting();
        if self.reading.set_for.is_some_and(|set_for| waiting.is_another_than(set_for)) {
            self.reading.stop();
        }
        loop {
            let patience = self.patience(waiting);
            let Poll::Ready(set_for) = self.reading.poll(cx, waiting, patience) else { break };
            match waiting {
                _ if set_for != waiting => {}
                Waiting::Answer => {}
                Waiting::Taking(_) => self.pulse.set_stuck_for_long(),
                Waiting::Head(_) | Waiting::Next(_) | Waiting::Stalled(_) => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            waiting = self.waiting();
        }
        Poll::Pending
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.unless_stuck(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.unless_stuck(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS, what was written may still be in a buffer of ours.
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.unless_stuck(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl PatientStream {
    /// A client that takes nothing for as long as it may be idle is gone, or means harm.
    fn unless_stuck<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        // hyper has let go of a body when its last piece is in the buffer: only here is known what is still in there.
        self.pulse.set_unsent(wrote.is_pending());
        if wrote.is_ready() {
            self.writing.stop();
            return wrote;
        }
        let (mut unsent, mut patience) = (Unsent::Just, self.stalled());
        while let Poll::Ready(set_for) = self.writing.poll(cx, unsent, patience) {
            match set_for {
                Unsent::Just => self.pulse.set_unsent_for_long(),
                Unsent::ForLong => return Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            }
            (unsent, patience) = (Unsent::ForLong, self.idle - self.stalled());
        }
        Poll::Pending
    }
}

/// A timer, and what it was set for.
struct Timer<T> {
    sleep: Option<Pin<Box<Sleep>>>,
    set_for: Option<T>,
}

impl<T: Copy> Timer<T> {
    fn new() -> Timer<T> {
        Timer { sleep: None, set_for: None }
    }

    /// Sets it if it is not set. When it has run out, it says what it was set for, and is no longer set.
    fn poll(&mut self, cx: &mut Context<'_>, reason: T, patience: Duration) -> Poll<T> {
        let set_for = *self.set_for.get_or_insert_with(|| {
            match &mut self.sleep {
                Some(timer) => timer.as_mut().set(sleep(patience)),
                None => self.sleep = Some(Box::pin(sleep(patience))),
            }
            reason
        });
        let Some(timer) = &mut self.sleep else { return Poll::Pending };
        timer.as_mut().poll(cx).map(|()| {
            self.set_for = None;
            set_for
        })
    }

    fn stop(&mut self) {
        self.set_for = None;
    }
}
