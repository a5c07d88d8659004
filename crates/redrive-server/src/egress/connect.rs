//! From a name to a connection, with the guard in between: the only code that opens outgoing sockets for HTTP.
//!
//! The order is the point. A name is resolved once; every address it has is judged; the connection goes to an address
//! that was judged, not to the name; and the socket's other end is looked at once more before a byte is written.
//! Literal addresses take the same way, without the resolver.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Host;

use super::error::{EgressError, EgressErrorKind};
use super::policy::EgressPolicy;
use super::request::Origin;
use crate::socket::Socket;

/// A name with more addresses than this is not asked for the rest.
const ADDRESSES_MAX: usize = 16;
/// However many addresses share the time for connecting, each gets this much.
const DIAL_MIN: Duration = Duration::from_millis(250);

/// Opens connections, and refuses to.
pub(super) struct Connector {
    pub(super) policy: EgressPolicy,
    pub(super) tls: TlsConnector,
}

impl Connector {
    /// The addresses of an origin that may be reached.
    pub(super) async fn resolve(&self, origin: &Origin) -> Result<Vec<SocketAddr>, EgressError> {
        let mut found: Vec<SocketAddr> = match &origin.host {
            Host::Ipv4(v4) => vec![(*v4, origin.port).into()],
            Host::Ipv6(v6) => vec![(*v6, origin.port).into()],
            Host::Domain(name) => {
                let found = tokio::net::lookup_host((name.as_str(), origin.port)).await;
                let found = found.map_err(|error| {
                    EgressError::new(EgressErrorKind::Resolve, format!("{name} cannot be resolved"))
                        .because(error)
                })?;
                found.take(ADDRESSES_MAX).collect()
            }
        };
        let mut said = None;
        found.retain(|address| match self.policy.permits(&origin.host, *address) {
            Ok(()) => true,
            Err(what) => {
                said = Some(what);
                false
            }
        });
        match said {
            _ if !found.is_empty() => Ok(found),
            // Which address it is stays unsaid: a name's inner address is nothing to tell whoever enqueued the job.
            Some(what) => Err(EgressError::new(
                EgressErrorKind::Refused,
                format!(
                    "{} may not be reached from here: its address is not on the open internet ({what}); the \
                     operator allows it with --allow-egress CIDR, or with egress.allow in the configuration",
                    origin.host
                ),
            )),
            None => {
                let message = format!("{} has no address", origin.host);
                Err(EgressError::new(EgressErrorKind::Resolve, message))
            }
        }
    }

    /// A connection to one of these addresses, which [`Connector::resolve`] has let through.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        addresses: &[SocketAddr],
        within: Duration,
    ) -> Result<(Socket, SocketAddr), EgressError> {
        let mut last = None;
        for (place, address) in addresses.iter().enumerate() {
            let share = within / u32::try_from(addresses.len() - place).unwrap_or(1);
            match tokio::time::timeout(share.max(DIAL_MIN), TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok((self.secure(origin, stream, *address).await?, *address)),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        let message = format!("{} does not take connections on port {}", origin.host, origin.port);
        let error = EgressError::new(EgressErrorKind::Connect, message);
        Err(match last {
            Some(reason) => error.because(reason),
            None => error,
        })
    }

    /// Makes sure of the other end, then of who it is.
    async fn secure(
        &self,
        origin: &Origin,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Result<Socket, EgressError> {
        let broken = |error: io::Error| {
            EgressError::new(EgressErrorKind::Connect, format!("{} closed at once", origin.host))
                .because(error)
        };
        let peer = stream.peer_addr().map_err(broken)?;
        if peer != address || self.policy.permits(&origin.host, peer).is_err() {
            let message =
                format!("the connection to {} ended somewhere else than it was sent to", origin.host);
            return Err(EgressError::new(EgressErrorKind::Refused, message));
        }
        // A request is one piece and wants to be sent as it is written.
        stream.set_nodelay(true).map_err(broken)?;
        if !origin.tls {
            return Ok(Socket::Plain(stream));
        }
        let name = match &origin.host {
            Host::Domain(name) => ServerName::try_from(name.trim_end_matches('.').to_owned()),
            Host::Ipv4(v4) => Ok(ServerName::from(std::net::IpAddr::V4(*v4))),
            Host::Ipv6(v6) => Ok(ServerName::from(std::net::IpAddr::V6(*v6))),
        };
        let name = name.map_err(|error| {
            let message = format!("no certificate can be valid for the name {}", origin.host);
            EgressError::new(EgressErrorKind::Tls, message).because(error)
        })?;
        let secured = self.tls.connect(name, stream).await;
        secured.map(Socket::secured).map_err(|error| {
            // What rustls objects to comes as invalid data; everything else is the network under it.
            let kind = match error.kind() {
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => EgressErrorKind::Tls,
                _ => EgressErrorKind::Connect,
            };
            EgressError::new(kind, format!("no secure connection to {}", origin.host)).because(error)
        })
    }
}
