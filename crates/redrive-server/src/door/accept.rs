//! The accept loop: takes connections within the limits, speaks HTTP/1 and HTTP/2 on them, and ends gracefully.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Guarded;
use super::answer::Answer;
use super::connections::{Pass, Turnstile};
use super::stream::PatientStream;
use super::tls::Tls;
use crate::config::Limits;
use crate::socket::Socket;

/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// The head of an HTTP/2 request, as HTTP/2 counts it.
const HTTP2_HEAD_BYTES_MAX: u32 = 16 << 10;
/// The head of an HTTP/1 request, as far as it is read at all; what is allowed of it is less, and judged later, so
/// that the refusal can say why.
const HTTP1_HEAD_BYTES_MAX: usize = 64 << 10;
/// Requests that a client may take back before they were looked at, on one HTTP/2 connection.
const RESETS_MAX: usize = 32;
/// How long the other end of a quiet HTTP/2 connection may take to say that it is still there. Without being asked, a
/// machine that has vanished would keep the place of an answer that has nothing to say.
const STILL_THERE_TIME: Duration = Duration::from_secs(20);
/// How long to wait when the system has no place for another connection.
const NO_PLACE_WAIT: Duration = Duration::from_millis(5);
/// Open files that the process needs besides its connections.
const OTHER_FILES: u64 = 512;

/// What is said to whoever finds every place taken by somebody who is being served.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 146\r\n\r\n\
{\"success\":false,\"error\":{\"code\":\"RETRY_BUSY\",\"message\":\"every connection is in use\",\
\"hint\":\"come back in a second, or raise limits.connections\"}}";

/// Where connections come in.
pub struct Entrance {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
}

impl Entrance {
    /// Clients have to speak TLS.
    pub fn secured(listener: TcpListener, tls: Arc<Tls>) -> Entrance {
        Entrance { listener, tls: Some(tls) }
    }
}

/// In plain HTTP.
impl From<TcpListener> for Entrance {
    fn from(listener: TcpListener) -> Entrance {
        Entrance { listener, tls: None }
    }
}

/// Serves until `shutdown` resolves; then takes nobody new, lets every request that runs finish within `grace`, and
/// returns. Idle connections are closed at once.
///
/// # Errors
///
/// Those of the listening socket that cannot be waited out.
pub async fn listen(
    entrance: impl Into<Entrance>,
    guarded: Guarded,
    limits: &Limits,
    grace: Duration,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let Entrance { listener, tls } = entrance.into();
    allow_open_files(limits.connections as u64 + OTHER_FILES);
    let front = Front {
        guarded,
        tls,
        http: http(limits.idle_timeout),
        turnstile: Turnstile::new(limits.connections, limits.connections_per_address),
        head: limits.header_read_timeout,
        idle: limits.idle_timeout,
    };
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! { biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => front.greet(socket, peer, &stopped, &mut connections),
                Err(error) => front.wait_out(&error).await,
            },
        }
    }
    drop(listener);
    drop(stop);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all_ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "Shutdown did not wait for the last connections");
        connections.shutdown().await;
    }
    Ok(())
}

fn http(idle: Duration) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    // Of lines in a head, hyper reads a hundred by itself, which is more than is allowed too; to say so would have it make
    // room for them on the heap each time.
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None::<Duration>)
        .max_buf_size(HTTP1_HEAD_BYTES_MAX);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HTTP2_HEAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .keep_alive_interval(idle)
        .keep_alive_timeout(STILL_THERE_TIME);
    http
}

/// Many systems allow a process a thousand open files until it asks for more.
fn allow_open_files(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let is_little = current.is_some_and(|current| current < wanted);
    if is_little && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_err() {
        // When they are used up, idle connections make place.
        tracing::warn!(wanted, "Cannot have as many open files as connections may need");
    }
}

#[derive(Clone)]
struct Front {
    guarded: Guarded,
    tls: Option<Arc<Tls>>,
    http: auto::Builder<TokioExecutor>,
    turnstile: Arc<Turnstile>,
    head: Duration,
    idle: Duration,
}

impl Front {
    /// Too many open files, or a client that was gone before it was looked at: neither is the end.
    async fn wait_out(&self, error: &io::Error) {
        tracing::warn!(%error, "Cannot take a connection; trying again");
        if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
            self.turnstile.make_room();
        }
        tokio::time::sleep(NO_PLACE_WAIT).await;
    }

    fn greet(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        stopped: &watch::Receiver<()>,
        connections: &mut JoinSet<()>,
    ) {
        let Some(pass) = self.turnstile.enter(peer.ip()) else {
            metrics::counter!("redrive_connections_refused_total").increment(1);
            // Whoever does not take it has lost nothing but the reason; with TLS there is nobody to tell it to yet.
            if self.tls.is_none() {
                drop(socket.into_std().and_then(|mut socket| socket.write(BUSY)));
            }
            return;
        };
        // An answer is one or two writes, and nobody gains from their being held back.
        drop(socket.set_nodelay(true));
        connections.spawn(attend(self.clone(), socket, peer, pass, stopped.clone()));
    }

    /// The socket as HTTP is spoken on it; none if a client cannot agree with us on keys in the time for a head.
    async fn secure(&self, socket: TcpStream, peer: SocketAddr) -> Option<Socket> {
        let Some(tls) = &self.tls else { return Some(Socket::Plain(socket)) };
        let agreed = tokio::time::timeout(self.head, tls.acceptor().accept(socket)).await;
        let error = match agreed {
            Ok(Ok(stream)) => return Some(Socket::secured(stream)),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        metrics::counter!("redrive_tls_handshakes_failed_total").increment(1);
        tracing::debug!(%peer, error = %crate::printable(&error.to_string()), "No secure connection");
        None
    }
}

/// Speaks with one client until it leaves, has to make place, or the server stops.
async fn attend(
    front: Front,
    socket: TcpStream,
    peer: SocketAddr,
    pass: Pass,
    mut stopped: watch::Receiver<()>,
) {
    let socket = tokio::select! { biased;
        () = pass.leave.notified() => return,
        socket = front.secure(socket, peer) => socket,
        // Nothing is owed to whoever has not asked for anything.
        _ = stopped.changed() => return,
    };
    let Some(socket) = socket else { return };
    let Front { guarded, http, head, idle, .. } = front;
    let stream = PatientStream::new(socket, pass.pulse.clone(), head, idle);
    let pulse = pass.pulse.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (mut beat, guarded) = (pulse.begin(), guarded.clone());
        async move {
            let version = request.version();
            let response = guarded.answer_on(request, peer.ip(), &mut beat).await;
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, beat, version)))
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut stopping = false;
    loop {
        tokio::select! { biased;
            () = pass.leave.notified() => return,
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error = %crate::printable(&error.to_string()), "Connection ended");
                }
                return;
            }
            // The sender is dropped when the server stops.
            _ = stopped.changed(), if !stopping => {
                // Nor here; hyper would wait for the rest of the head.
                if pass.pulse.begun() == 0 {
                    return;
                }
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_answer_is_as_long_as_it_says() {
        let text = std::str::from_utf8(BUSY).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        serde_json::from_str::<serde_json::Value>(body).unwrap();
    }
}
