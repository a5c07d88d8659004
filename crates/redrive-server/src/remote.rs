//! A server from afar: how the command line asks one that an operator has named. It goes wherever it is told, so it is
//! for people at a terminal; what jobs ask for goes through [`egress`](crate::egress).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use redrive::secs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::{egress, pem};

/// How long a server may take to take a connection.
const CONNECT_MAX: Duration = secs(10);
/// How long it may take to begin its answer.
const ANSWER_MAX: Duration = secs(60);

/// A server, and who we are to it.
#[derive(Clone)]
pub struct Remote {
    url: Url,
    token: Option<Arc<str>>,
    tls: Option<TlsConnector>,
}

/// Whom to trust, and who we are, in files; both in PEM.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Who vouches for the server, instead of those whom the operating system trusts.
    pub ca: Option<PathBuf>,
    /// Our certificate and its private key, in one file, for a server that asks for one.
    pub cert: Option<PathBuf>,
}

impl Trust {
    fn connector(&self) -> Result<TlsConnector> {
        let roots = match &self.ca {
            Some(path) => pem::roots(path).map_err(anyhow::Error::msg)?,
            None => egress::system_roots(),
        };
        let builder = egress::tls_builder(roots);
        let config = match &self.cert {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = || format!("{} does not hold a certificate and its private key", path.display());
                let chain = pem::certificates(path).map_err(anyhow::Error::msg)?;
                let key = PrivateKeyDer::from_pem_file(path).with_context(wrong)?;
                builder.with_client_auth_cert(chain, key).with_context(wrong)?
            }
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

impl Remote {
    /// The server at this URL, such as `http://127.0.0.1:7373`.
    ///
    /// # Errors
    ///
    /// What is wrong with the URL.
    pub fn new(url: &str, token: Option<&str>) -> Result<Remote> {
        let hint = "write it as http://127.0.0.1:7373 or https://redrive.example";
        let parsed = Url::parse(url).map_err(|error| anyhow!("{url:?} is not a URL ({error}); {hint}"))?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            bail!("{url:?} does not name a server; {hint}");
        }
        Ok(Remote { url: parsed, token: token.map(Into::into), tls: None })
    }

    /// The same, as these files say.
    ///
    /// # Errors
    ///
    /// What is wrong with the files.
    pub fn trusting(self, trust: &Trust) -> Result<Remote> {
        Ok(Remote { tls: Some(trust.connector()?), ..self })
    }

    /// Where it is, for people.
    pub fn shown(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Sends a request, whose URI is a path, and answers with what came back, whatever its status.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or breaks off.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Incoming>> {
        let base = self.url.path().trim_end_matches('/');
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri: Uri = format!("{base}{path}").parse().context("the path cannot be sent")?;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&self.authority()).context("the host cannot be sent")?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("redrive/", env!("CARGO_PKG_VERSION"))));
        if let Some(token) = &self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .context("the token has characters that no token has")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let sent = self.connect_and_send(request.map(Full::new));
        let answered = tokio::time::timeout(ANSWER_MAX, sent).await;
        answered.map_err(|_| anyhow!("it has not answered within {} s", ANSWER_MAX.as_secs()))?
    }

    fn authority(&self) -> String {
        let host = self.url.host().map(|host| host.to_string()).unwrap_or_default();
        self.url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
    }

    async fn connect_and_send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let host = self.url.host().context("there is no host")?;
        let port = self.url.port_or_known_default().unwrap_or(80);
        let dialled = async {
            match host {
                Host::Domain(name) => TcpStream::connect((name, port)).await,
                Host::Ipv4(v4) => TcpStream::connect((v4, port)).await,
                Host::Ipv6(v6) => TcpStream::connect((v6, port)).await,
            }
        };
        let stream = tokio::time::timeout(CONNECT_MAX, dialled)
            .await
            .map_err(|_| anyhow!("it does not take connections"))??;
        stream.set_nodelay(true)?;
        if self.url.scheme() == "http" {
            return speak(stream, request).await;
        }
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.to_owned())?,
            Host::Ipv4(v4) => ServerName::from(std::net::IpAddr::V4(v4)),
            Host::Ipv6(v6) => ServerName::from(std::net::IpAddr::V6(v6)),
        };
        let tls = self.tls.clone().unwrap_or_else(|| egress::tls(egress::system_roots()));
        let secured = tls.connect(name, stream).await;
        speak(secured.context("no secure connection")?, request).await
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the answer; whatever goes wrong there is told to whoever reads the answer.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_servers() {
        for good in ["http://127.0.0.1:7373", "https://redrive.example/base/", "http://[::1]:1"] {
            assert!(Remote::new(good, None).is_ok(), "{good}");
        }
        for bad in ["127.0.0.1:7373", "ftp://x", "redrive", "", "sqlite:x.db"] {
            let error = Remote::new(bad, None).err().unwrap().to_string();
            assert!(error.contains("write it as http://127.0.0.1:7373"), "{error}");
        }
    }
}
