//! The one guarded way out: every HTTP request this server makes for somebody goes through [`Egress::send`].
//!
//! Whoever may enqueue a job chooses its URL; the guard is what keeps that URL from reaching this machine, its
//! neighbours and its cloud's credentials. It stands at the socket (`connect.rs`), where no spelling of an address and
//! no change of a DNS record goes past it. Proxies named by the environment are not used: nothing here reads it.
//! HTTP/1.1 alone is spoken: every receiver has it, and it is plain when a request has been sent.
//!
//! Not here: what a status means for a job (`executor/http.rs`).

mod address;
mod connect;
mod error;
mod policy;
mod pool;
mod request;
mod streamed;

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use connect::Connector;
use pool::{Age, Link, Pool};
use request::Origin;

pub use address::{Verdict, canonical, verdict};
pub use error::{EgressError, EgressErrorKind};
pub use policy::{Allow, EgressPolicy};
pub use request::{
    HEADER_BYTES_MAX, HEADERS_MAX, KEPT_BYTES_MAX, READ_BYTES_MAX, Redirects, Request, Response, Timeouts,
    URL_BYTES_MAX, user_header,
};
pub use streamed::Streamed;

/// Redirects that are followed for one request.
const HOPS_MAX: usize = 3;
/// How long the text of a refusal is waited for.
const REFUSAL_WAIT: Duration = Duration::from_secs(2);
/// The head of one answer.
const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Sends requests to where they may go. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Egress {
    connector: Arc<Connector>,
    pool: Arc<Pool>,
}

impl Egress {
    /// Under this policy, trusting the certificates that the operating system trusts.
    pub fn new(policy: EgressPolicy) -> Egress {
        Egress::with_roots(policy, system_roots())
    }

    /// Under this policy, trusting these certificates alone.
    pub fn with_roots(policy: EgressPolicy, roots: RootCertStore) -> Egress {
        let connector = Connector { policy, tls: tls(roots) };
        Egress { connector: Arc::new(connector), pool: Arc::new(Pool::new()) }
    }

    /// Sends a request and reads its answer, whatever its status.
    ///
    /// Dropped, it closes the connection it used.
    ///
    /// # Errors
    ///
    /// There is no answer. [`EgressError::was_sent`] says whether the far side may have acted all the same.
    pub fn send(&self, request: Request) -> impl Future<Output = Result<Response, EgressError>> + Send {
        let total = request.timeouts.total;
        let again = (request.redirects == Redirects::Follow).then(|| Box::new(request.clone()));
        // Made here and not on the way: a future that is given a request has room for it twice.
        let call = Call::of(request);
        async move {
            let sent = AtomicBool::new(false);
            let answer = pin!(self.follow(call?, again, &sent));
            match timeout(total, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(timed_out(&sent, "the request took longer than it may")),
            }
        }
    }

    /// Whether a host takes connections on a port, as guarded as a request would be. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Why it does not, or may not be asked.
    pub async fn reach(&self, host: &str, port: u16, within: Duration) -> Result<(), EgressError> {
        let host = url::Host::parse(host).map_err(|error| {
            EgressError::new(EgressErrorKind::Invalid, format!("{host} is no host")).because(error)
        })?;
        let origin = Origin { tls: false, host, port };
        let reached = async {
            let addresses = self.connector.resolve(&origin).await?;
            self.connector.connect(&origin, &addresses, within).await.map(drop)
        };
        timeout(within, reached).await.unwrap_or_else(|_| {
            let message = format!("{} did not take the connection in time", origin.host);
            Err(EgressError::new(EgressErrorKind::TimedOutUnsent, message))
        })
    }

    /// Makes a call, and goes where the answer points if it is said what to ask again.
    async fn follow(
        &self,
        mut call: Box<Call>,
        mut again: Option<Box<Request>>,
        sent: &AtomicBool,
    ) -> Result<Response, EgressError> {
        for _ in 0..HOPS_MAX {
            let response = self.exchange(call, sent).await?;
            match (again, response.headers.get(LOCATION)) {
                (Some(asked), Some(location)) if points_elsewhere(response.status) => {
                    let location = location.to_str().unwrap_or_default();
                    let next = asked.redirected(response.status, location)?;
                    call = Call::of(next.clone())?;
                    again = Some(Box::new(next));
                    // Whoever redirects has not acted.
                    sent.store(false, Ordering::Relaxed);
                }
                _ => return Ok(response),
            }
        }
        // One more than may be followed: if it points elsewhere again, that is the answer.
        self.exchange(call, sent).await
    }

    /// One request to one origin and its answer.
    async fn exchange(&self, mut call: Box<Call>, sent: &AtomicBool) -> Result<Response, EgressError> {
        let (link, answer) = self.ask(&mut call, sent).await?;
        let (http::response::Parts { status, headers, .. }, body) = answer.into_parts();
        let Read { body, truncated } = read_body(&call.origin, status, body, call.timeouts.idle).await?;
        if !truncated {
            self.pool.put(call.origin, link);
        }
        Ok(Response { status, headers, body, truncated })
    }

    /// Sends a request and waits for the head of its answer.
    async fn ask(
        &self,
        call: &mut Call,
        sent: &AtomicBool,
    ) -> Result<(Link, http::Response<Incoming>), EgressError> {
        let Call { origin, timeouts, outgoing } = call;
        loop {
            let linked = within(timeouts.connect, pin!(self.link(origin, timeouts.connect))).await;
            let mut link = linked.unwrap_or_else(|_| {
                let message = format!("{} did not take the connection in time", origin.host);
                Err(EgressError::new(EgressErrorKind::TimedOutUnsent, message))
            })?;
            sent.store(true, Ordering::Relaxed);
            let answer = pin!(link.sender.try_send_request(std::mem::take(outgoing)));
            let answer = timeout(timeouts.first_byte, answer).await;
            let answer = answer.map_err(|_| timed_out(sent, &format!("{} did not answer", origin.host)))?;
            let mut failed = match answer {
                Ok(answer) => return Ok((link, answer)),
                Err(failed) => failed,
            };
            // What comes back was not sent: the connection had been closed by then.
            let Some(unsent) = failed.take_message() else {
                return Err(broken(origin, failed.into_error()));
            };
            sent.store(false, Ordering::Relaxed);
            // While it lay idle, that is no wonder, and another will do. A new one that is closed at once says that
            // nobody is served there.
            if link.age == Age::New {
                let message = format!("{} closed the connection at once", origin.host);
                return Err(EgressError::new(EgressErrorKind::Connect, message).because(failed.into_error()));
            }
            *outgoing = unsent;
        }
    }

    /// A connection that is ready for a request: an open one if there is one to a permitted address, else a new one.
    async fn link(&self, origin: &Origin, within: Duration) -> Result<Link, EgressError> {
        let addresses = self.connector.resolve(origin).await?;
        while let Some(mut link) = self.pool.take(origin, &addresses) {
            if link.sender.ready().await.is_ok() {
                return Ok(link);
            }
        }
        // Boxed, for it takes more room than all the rest, and is seldom needed.
        Box::pin(self.dial(origin, &addresses, within)).await
    }

    async fn dial(
        &self,
        origin: &Origin,
        addresses: &[SocketAddr],
        within: Duration,
    ) -> Result<Link, EgressError> {
        let (stream, address) = self.connector.connect(origin, addresses, within).await?;
        // Of headers, hyper takes a hundred by itself; to say so would have it make room for them on the heap each time.
        let handshake = http1::Builder::new()
            .max_header_size(ANSWER_HEAD_BYTES_MAX)
            .max_buf_size(ANSWER_HEAD_BYTES_MAX)
            .handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(|error| {
            EgressError::new(EgressErrorKind::Connect, format!("{} closed at once", origin.host))
                .because(error)
        })?;
        // What goes wrong on it is told to whoever waits for an answer.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Link { sender, driver, address, age: Age::New })
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("policy", &self.connector.policy).finish_non_exhaustive()
    }
}

fn points_elsewhere(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// A request that is ready to be sent. Boxed wherever it is handed on, for the same reason as it is made early.
struct Call {
    origin: Origin,
    timeouts: Timeouts,
    outgoing: http::Request<Full<Bytes>>,
}

impl Call {
    fn of(request: Request) -> Result<Box<Call>, EgressError> {
        let (origin, timeouts) = (Origin::of(request.url())?, request.timeouts);
        Ok(Box::new(Call { origin, timeouts, outgoing: outgoing(request)? }))
    }
}

/// The request as it goes over the wire.
fn outgoing(request: Request) -> Result<http::Request<Full<Bytes>>, EgressError> {
    let unsendable = |error: http::Error| {
        EgressError::new(EgressErrorKind::Invalid, "the URL cannot be asked for").because(error)
    };
    let host = HeaderValue::from_str(request.authority()).map_err(|error| unsendable(error.into()))?;
    let path = &request.url()[url::Position::BeforePath..url::Position::AfterQuery];
    let path: http::Uri = path.parse().map_err(|error: http::uri::InvalidUri| unsendable(error.into()))?;
    let mut outgoing = http::Request::new(Full::new(request.body));
    *outgoing.method_mut() = request.method;
    *outgoing.uri_mut() = path;
    *outgoing.headers_mut() = request.headers;
    outgoing.headers_mut().insert(HOST, host);
    // A POST without a length is answered with 411 by some.
    let has_meaning = [Method::POST, Method::PUT, Method::PATCH].contains(outgoing.method());
    if has_meaning && outgoing.body().is_end_stream() {
        outgoing.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    Ok(outgoing)
}

/// What a future comes to, if it takes no longer than this. For what is mostly there at once: no timer is made then.
async fn within<F: Future>(limit: Duration, mut future: Pin<&mut F>) -> Result<F::Output, Elapsed> {
    match std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => timeout(limit, future).await,
    }
}

struct Read {
    body: Bytes,
    truncated: bool,
}

/// Reads what may be read. Of an answer that says no, its status is what matters: whatever is wrong with its body, the
/// beginning will do, and it is not waited for long.
async fn read_body(
    origin: &Origin,
    status: StatusCode,
    body: Incoming,
    idle: Duration,
) -> Result<Read, EgressError> {
    let mut read = BytesMut::new();
    let end = if status.is_success() {
        collect(origin, body, READ_BYTES_MAX, idle, &mut read).await?
    } else {
        let reading = pin!(collect(origin, body, KEPT_BYTES_MAX, idle, &mut read));
        within(idle.min(REFUSAL_WAIT), reading).await.unwrap_or(Ok(End::Cut)).unwrap_or(End::Cut)
    };
    Ok(Read { body: read.freeze(), truncated: end == End::Cut })
}

/// How much of a body was read.
#[derive(PartialEq, Eq)]
enum End {
    /// All of it.
    Whole,
    /// As much as may be read, or as came in time.
    Cut,
}

/// Reads a body, at most so many bytes of it.
async fn collect(
    origin: &Origin,
    mut body: Incoming,
    limit: usize,
    idle: Duration,
    read: &mut BytesMut,
) -> Result<End, EgressError> {
    loop {
        let frame = within(idle, pin!(body.frame())).await.map_err(|_| {
            let message = format!("{} stopped in the middle of its answer", origin.host);
            EgressError::new(EgressErrorKind::TimedOutSent, message)
        })?;
        let Some(frame) = frame else { return Ok(End::Whole) };
        let data = frame.map_err(|error| broken(origin, error))?.into_data().unwrap_or_default();
        let room = limit - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok(End::Cut);
        }
    }
}

fn timed_out(sent: &AtomicBool, message: &str) -> EgressError {
    let kind = match sent.load(Ordering::Relaxed) {
        true => EgressErrorKind::TimedOutSent,
        false => EgressErrorKind::TimedOutUnsent,
    };
    EgressError::new(kind, message)
}

/// The connection broke after the request had gone out.
fn broken(origin: &Origin, error: hyper::Error) -> EgressError {
    if error.is_parse_too_large() {
        let message = format!("the headers of {}'s answer are larger than may be read", origin.host);
        return EgressError::new(EgressErrorKind::TooLarge, message).because(error);
    }
    let message = match error.is_parse() {
        true => format!("{} answered with something that is no HTTP", origin.host),
        false => format!("{} broke the connection before its answer was complete", origin.host),
    };
    EgressError::new(EgressErrorKind::Reset, message).because(error)
}

/// The certificates that the operating system trusts.
pub(crate) fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (_, unreadable) = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors = found.errors.len();
        tracing::warn!(unreadable, errors, "no root certificates on this system: https will fail");
    }
    roots
}

/// TLS 1.2 or newer with whoever these certificates vouch for.
pub(crate) fn tls(roots: RootCertStore) -> TlsConnector {
    TlsConnector::from(Arc::new(tls_builder(roots).with_no_client_auth()))
}

/// The same, before it is said who we are.
pub(crate) fn tls_builder(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has cipher suites for both versions")
        .with_root_certificates(roots)
}
