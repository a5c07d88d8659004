//! A response's body on its way out, and how far its client lets it go.
//!
//! Over HTTP/1 the socket tells whether a client takes its answer. Over HTTP/2 it does not: a client may read its socket
//! and yet allow no byte of the answer (flow control). What can be seen is that hyper takes a piece of the body and does
//! not come back for the next one, or let go of the body, before it may send the first.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::Version;
use hyper::body::{Frame, SizeHint};

use super::pulse::{Beat, Part};

/// How much of a body is handed on at once over HTTP/2: hyper lets go of a piece as soon as its first byte may be sent, so
/// that a long one would not be seen to move for as long as a slow client needs for it.
const PIECE_BYTES: usize = 16 << 10;

/// A response's body that counts as under way until it has been sent.
pub(super) struct Answer {
    body: Body,
    /// What is left of a frame that was too long for one piece.
    rest: Bytes,
    beat: Beat,
    version: Version,
}

impl Answer {
    pub(super) fn new(body: Body, mut beat: Beat, version: Version) -> Answer {
        // From before the head is sent: whoever looks then would not see the first piece yet, and not look again soon.
        if version == Version::HTTP_2 {
            beat.hold_back(Part::Head);
        }
        Answer { body, rest: Bytes::new(), beat, version }
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let answer = &mut *self;
        // Whoever comes for more has sent what it had.
        answer.beat.take();
        if answer.version != Version::HTTP_2 {
            return Pin::new(&mut answer.body).poll_frame(cx);
        }
        let mut piece = mem::take(&mut answer.rest);
        if piece.is_empty() {
            let frame = match ready!(Pin::new(&mut answer.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            piece = match frame.into_data() {
                Ok(data) => data,
                // Trailers are not held back.
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
        }
        answer.rest = piece.split_off(piece.len().min(PIECE_BYTES));
        answer.beat.hold_back(Part::Piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt as _;
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;

    use super::*;
    use crate::door::pulse::Pulse;

    fn answer(pulse: &Arc<Pulse>, body: Body, version: Version) -> Answer {
        Answer::new(body, pulse.begin(), version)
    }

    #[tokio::test]
    async fn over_http2_a_body_comes_in_pieces_and_each_is_held_back_until_the_next_is_asked_for() {
        let pulse = Arc::<Pulse>::default();
        let text: Vec<u8> = (0..=255).cycle().take(2 * PIECE_BYTES + 5).collect();
        let mut answer = answer(&pulse, Body::from(text.clone()), Version::HTTP_2);
        assert!(pulse.is_stuck(), "its head has yet to be sent");
        assert_eq!(answer.size_hint().exact(), Some(text.len() as u64));
        let mut got = Vec::new();
        for length in [PIECE_BYTES, PIECE_BYTES, 5] {
            assert!(!answer.is_end_stream());
            let piece = answer.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((piece.len(), pulse.is_stuck()), (length, true));
            got.extend_from_slice(&piece);
            assert_eq!(answer.size_hint().exact(), Some((text.len() - got.len()) as u64));
        }
        assert!(got == text && answer.is_end_stream() && pulse.taken() == 2);
        drop(answer);
        assert!(!pulse.is_stuck() && pulse.taken() == 3);
    }

    #[tokio::test]
    async fn over_http2_a_body_that_has_nothing_to_say_is_not_held_back() {
        let pulse = Arc::<Pulse>::default();
        let news = stream::iter([Ok::<_, axum::Error>("news")]);
        let body = Body::from_stream(stream::StreamExt::chain(news, stream::pending()));
        let mut answer = answer(&pulse, body, Version::HTTP_2);
        assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "news");
        assert!(pulse.is_stuck());
        assert!(answer.frame().now_or_never().is_none() && !pulse.is_stuck());
    }

    #[tokio::test]
    async fn over_http1_a_body_comes_as_it_is() {
        let pulse = Arc::<Pulse>::default();
        let mut answer = answer(&pulse, Body::from(vec![0; 1 << 20]), Version::HTTP_11);
        assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1 << 20);
        assert!(!pulse.is_stuck() && pulse.is_answering());
    }
}
