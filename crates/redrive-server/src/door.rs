//! The door: everything a request passes before it reaches a route.
//!
//! [`bind`] takes an address and [`listen`] connections there, within limits; [`Guarded`] is a router with the guards before it: sizes, the host it was
//! meant for, pages of other sites, tokens, the body. A route finds [`Who`] in the request's extensions and asks
//! `who.need(Scope::Operate)?`. Not here: routes, and what they answer.

mod accept;
mod answer;
mod authenticate;
mod bind;
mod body;
mod connections;
mod guard;
mod opening;
mod pulse;
mod refusal;
mod session;
mod stream;
mod throttle;
mod tls;
mod token;
mod who;

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request};
use redrive::Clock;
use tower::Service as _;

use self::body::{Room, Sender, Terms};
use self::pulse::{Beat, Pulse};
use crate::config::{Config, Limits};

pub use self::accept::{Entrance, listen};
pub use self::authenticate::Tokens;
pub use self::bind::bind;
pub(crate) use self::body::{JSON_DEPTH_MAX, is_too_deep};
pub use self::guard::{HEADER_BYTES_MAX, HEADERS_MAX, Hosts, URL_BYTES_MAX};
pub use self::opening::{EXIT_CONFIG, Entry, NotOpened, Opening, open};
pub use self::refusal::Refusal;
pub use self::session::{Counter, SESSION_PATH};
pub use self::tls::{Tls, TlsMistake};
pub use self::token::{Entropy, Hash, MemoryTokenBook, Scope, Token, TokenBook, TokenRecord, entropy};
pub use self::who::Who;

/// What the door needs to know.
#[derive(Clone)]
pub struct DoorConfig {
    /// The names under which the server answers.
    pub hosts: Hosts,
    /// How large a body may be.
    pub body_bytes: usize,
    /// How long the next thousand bytes of a body, or its end, may take.
    pub body_pace: Duration,
    /// How long all of it may take.
    pub body_time: Duration,
    /// How many bytes of bodies may be in memory at once.
    pub body_room: usize,
    /// To whom it is open.
    pub entry: Entry,
    /// Paths that need no token: exactly these, whatever the method.
    pub public: Vec<String>,
    /// Where it gets its time from.
    pub clock: Clock,
}

impl DoorConfig {
    /// The door of this configuration. Only `/healthz` is public.
    pub fn new(config: &Config, entry: Entry, clock: Clock) -> DoorConfig {
        DoorConfig {
            hosts: Hosts::new(config.hosts.iter().cloned(), config.listen.ip()),
            body_bytes: config.limits.body_bytes,
            body_pace: body::PACE,
            body_time: body::time(config.limits.body_bytes),
            body_room: body::ROOM_BYTES,
            entry,
            public: vec!["/healthz".into()],
            clock,
        }
    }

    /// A door for tests and demonstrations: loopback, open to everybody there, with the usual limits.
    pub fn local() -> DoorConfig {
        let body_bytes = Limits::default().body_bytes;
        DoorConfig {
            hosts: Hosts::new([], IpAddr::V6(Ipv6Addr::LOCALHOST)),
            body_bytes,
            body_pace: body::PACE,
            body_time: body::time(body_bytes),
            body_room: body::ROOM_BYTES,
            entry: Entry::Local,
            public: vec!["/healthz".into()],
            clock: Clock::system(),
        }
    }
}

/// The id of a request: in its extensions, in the answer's `x-request-id`, and in the log. Unlike any other process's, and
/// in order within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    process: u64,
    number: u64,
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.process, self.number)
    }
}

/// A router behind the door.
#[derive(Clone)]
pub struct Guarded {
    door: Arc<Door>,
    /// The door is no layer of it: a layer of a router is one of every route, and made anew for each request.
    router: Router,
}

struct Door {
    config: DoorConfig,
    tokens: Option<Arc<Tokens>>,
    room: Room,
    process: u64,
    requests: AtomicU64,
}

impl Guarded {
    /// Puts the guards before a router.
    pub fn new(router: Router, config: DoorConfig) -> Guarded {
        let tokens = match &config.entry {
            Entry::Local => None,
            Entry::Tokens(book) => Some(Arc::new(Tokens::new(book.clone()))),
        };
        let process = redrive::Rng::from_os().next_u64();
        let room = Room::new(config.body_room, config.body_bytes);
        Guarded {
            door: Arc::new(Door { config, tokens, room, process, requests: AtomicU64::new(0) }),
            router,
        }
    }

    /// The way of a request in, from this address, and of its answer out.
    pub async fn answer<B>(&self, request: Request<B>, from: IpAddr) -> Response
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        self.answer_on(request, from, &mut Arc::<Pulse>::default().begin()).await
    }

    /// The same on a connection, which is told as soon as it is known who asks.
    async fn answer_on<B>(&self, request: Request<B>, from: IpAddr, beat: &mut Beat) -> Response
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let number = self.door.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let id = RequestId { process: self.door.process, number };
        let is_api = request.uri().path().starts_with("/api/");
        let wants_head = request.method() == Method::HEAD;
        let mut response = match self.door.admit(request, from, id, beat).await {
            Ok(request) => guarded(async { self.router.clone().call(request).await }, id).await,
            Err(refusal) => refusal.into_response(),
        };
        // A route leaves it out itself; a refusal does not.
        if wants_head {
            *response.body_mut() = Body::empty();
        }
        let headers = response.headers_mut();
        secure(headers, is_api);
        headers.insert(TIME, self.door.config.clock.now().as_millis().into());
        if let Ok(id) = HeaderValue::try_from(id.to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        response
    }
}

/// What somebody comes for, as far as the door cares.
#[derive(Clone, Copy, PartialEq)]
enum Errand {
    /// To look at something that everybody may see.
    Look,
    /// To open or end a session: they show at the counter what they have.
    Sign,
    /// Whatever needs a token.
    Ask,
}

impl Door {
    /// The cheap questions first; nothing of the body is read for somebody who may not come in.
    async fn admit<B>(
        &self,
        request: Request<B>,
        from: IpAddr,
        id: RequestId,
        beat: &mut Beat,
    ) -> Result<Request<Body>, Refusal>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let (mut head, body) = request.into_parts();
        guard::check_size(&head)?;
        let authority = guard::authority(&head)?;
        self.config.hosts.check(authority)?;
        guard::check_cross_site(&head, authority)?;
        let errand = self.errand(&head);
        let who = self.who(&head, errand, from).await?;
        let is_known = self.tokens.is_none() || errand == Errand::Ask;
        let (sender, turn) = if is_known {
            beat.know();
            (Sender::Known(&self.room), None)
        } else if errand == Errand::Sign && !body.is_end_stream() {
            (Sender::Stranger, Some(beat.read_for_a_stranger().ok_or_else(body::one_at_a_time)?))
        } else {
            (Sender::Stranger, None)
        };
        let bytes = body::read(&head, body, self.terms(errand, sender)).await?;
        drop(turn);
        if head.uri.path() == SESSION_PATH {
            let counter = Counter::new(self.tokens.clone(), from, self.config.clock.now());
            head.extensions.insert(counter);
        }
        head.extensions.insert(id);
        head.extensions.insert(who);
        Ok(Request::from_parts(head, Body::from(bytes)))
    }

    fn errand(&self, head: &http::request::Parts) -> Errand {
        let path = head.uri.path();
        let is_public = self.config.public.iter().any(|public| public == path);
        if is_public || (head.method.is_safe() && is_page(path)) {
            Errand::Look
        } else if path == SESSION_PATH && head.method != Method::GET {
            Errand::Sign
        } else {
            Errand::Ask
        }
    }

    async fn who(&self, head: &http::request::Parts, errand: Errand, from: IpAddr) -> Result<Who, Refusal> {
        let Some(tokens) = &self.tokens else {
            return guard::check_direct(head).map(|()| Who::local());
        };
        match errand {
            Errand::Look | Errand::Sign => Ok(Who::nobody()),
            // Boxed, since every request to a server without tokens would carry the room for it.
            Errand::Ask => Box::pin(tokens.who(&head.headers, from, self.config.clock.now())).await,
        }
    }

    fn terms<'a>(&self, errand: Errand, sender: Sender<'a>) -> Terms<'a> {
        let DoorConfig { body_bytes, body_pace, body_time, .. } = self.config;
        let terms = Terms::whole(body_bytes, body_pace, body_time, sender);
        match errand {
            Errand::Look => terms.none(),
            Errand::Sign => terms.sign_in(),
            Errand::Ask => terms,
        }
    }
}

/// Whether it is a page of the dashboard or one of its files: whoever has no token yet must be able to sign in.
fn is_page(path: &str) -> bool {
    #[cfg(feature = "dashboard")]
    return crate::assets::is_public(path);
    #[cfg(not(feature = "dashboard"))]
    return path.is_empty();
}

/// The route's answer; where the route panics, an answer that says only under which id that was logged.
async fn guarded(answer: impl Future<Output = Result<Response, Infallible>>, id: RequestId) -> Response {
    let mut answer = pin!(answer);
    let caught =
        std::future::poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(response))) => Poll::Ready(Some(response)),
            Err(_) => Poll::Ready(None),
        });
    match caught.await {
        Some(response) => response,
        None => {
            tracing::error!(request_id = %id, "A route panicked");
            Refusal::new(500, "RETRY_INTERNAL", format!("something went wrong in the server (request {id})"))
                .hint("nothing is known about the cause here; look for the request in the server's log")
                .into_response()
        }
    }
}

/// What every answer says to browsers: run nothing that is not ours, guess no types, tell nobody, stay apart.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The id of the request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The time in milliseconds since 1970: due times go by it, and `Date` only knows the second.
const TIME: HeaderName = HeaderName::from_static("redrive-time");

fn secure(headers: &mut HeaderMap, is_api: bool) {
    headers.reserve(HEADERS.len() + 3);
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // A route outside the API that knows better, such as one for files that never change, has said so.
    if is_api || !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}
