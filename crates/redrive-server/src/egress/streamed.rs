//! Answers that are too large to be held: their body comes piece by piece, as fast as it is taken.
//!
//! The way out is the same as for [`Egress::send`]; what differs is who reads the body, and that nothing limits how
//! long that may take as a whole.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use url::Url;

use super::pool::{Link, Pool};
use super::request::{Origin, Redirects, Request, Response, Timeouts};
use super::{
    Call, Egress, EgressError, EgressErrorKind, HOPS_MAX, Read, broken, points_elsewhere, read_body, within,
};

/// An answer whose body is still to come. Dropped before its end, it closes its connection.
pub struct Streamed {
    /// Its status, whatever it is.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    url: Url,
    origin: Origin,
    timeouts: Timeouts,
    body: Incoming,
    link: Option<Link>,
    pool: Arc<Pool>,
}

impl Egress {
    /// Sends a request and returns with the head of its answer, whatever its status; redirects are followed if that was
    /// asked for. Of the timeouts, the total one does not count.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn open(&self, mut request: Request) -> Result<Streamed, EgressError> {
        let mut hops = 0;
        loop {
            let again = (request.redirects == Redirects::Follow && hops < HOPS_MAX).then(|| request.clone());
            let streamed = self.head(request).await?;
            match (again, streamed.headers.get(LOCATION)) {
                (Some(again), Some(location)) if points_elsewhere(streamed.status) => {
                    let location = location.to_str().unwrap_or_default();
                    request = again.redirected(streamed.status, location)?;
                    hops += 1;
                }
                _ => return Ok(streamed),
            }
        }
    }

    async fn head(&self, request: Request) -> Result<Streamed, EgressError> {
        let (url, sent) = (request.url().clone(), AtomicBool::new(false));
        let mut call = Call::of(request)?;
        let (link, answer) = self.ask(&mut call, &sent).await?;
        let (http::response::Parts { status, headers, .. }, body) = answer.into_parts();
        let (link, pool) = (Some(link), self.pool.clone());
        let Call { origin, timeouts, .. } = *call;
        Ok(Streamed { status, headers, url, origin, timeouts, body, link, pool })
    }
}

impl Streamed {
    /// Who answered in the end.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The next piece of the body; none when all of it has come, as long as it was said to be.
    ///
    /// # Errors
    ///
    /// The connection broke, or nothing came for as long as the idle timeout.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EgressError> {
        loop {
            let frame = within(self.timeouts.idle, pin!(self.body.frame())).await.map_err(|_| {
                let message = format!("{} stopped in the middle of its answer", self.origin.host);
                EgressError::new(EgressErrorKind::TimedOutSent, message)
            })?;
            let Some(frame) = frame else {
                if let Some(link) = self.link.take() {
                    self.pool.put(self.origin.clone(), link);
                }
                return Ok(None);
            };
            // What is no data is a trailer.
            if let Ok(data) = frame.map_err(|error| broken(&self.origin, error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The beginning of an answer that says no, as far as it comes soon.
    ///
    /// # Errors
    ///
    /// Only for a success, which may be as long as it likes: it is read with [`Streamed::next`].
    pub async fn refusal(self) -> Result<Response, EgressError> {
        let Streamed { status, headers, origin, timeouts, body, link, pool, .. } = self;
        let Read { body, truncated } = read_body(&origin, status, body, timeouts.idle).await?;
        if let (Some(link), false) = (link, truncated) {
            pool.put(origin, link);
        }
        Ok(Response { status, headers, body, truncated })
    }
}
