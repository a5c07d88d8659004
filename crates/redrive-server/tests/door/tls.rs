//! The door with TLS: which versions are spoken, who comes in without a certificate of their own, and what happens to
//! requests while certificates are replaced.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redrive_server::config::{Limits, TlsConfig};
use redrive_server::door::Tls;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Authority;
use crate::ground::{Client, Server, request, within};

const TLS12: &SupportedProtocolVersion = &rustls::version::TLS12;
const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

/// The files of a server called localhost, and those who vouch for it and for its clients.
struct Files {
    folder: tempfile::TempDir,
    servers: Authority,
    workers: Authority,
}

impl Files {
    fn new() -> Files {
        let files = Files {
            folder: tempfile::tempdir().unwrap(),
            servers: Authority::new(),
            workers: Authority::new(),
        };
        files.servers.write(&files.path("servers.pem"));
        files.workers.write(&files.path("workers.pem"));
        files.renew();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a new certificate where the old one was.
    fn renew(&self) {
        let (cert, key) = self.servers.vouch_for("localhost");
        fs::write(self.path("cert.pem"), cert).unwrap();
        fs::write(self.path("key.pem"), key).unwrap();
    }

    fn config(&self) -> TlsConfig {
        TlsConfig { cert: self.path("cert.pem"), key: self.path("key.pem"), client_ca: None }
    }

    fn open(&self) -> Arc<Tls> {
        Arc::new(Tls::open(self.config()).unwrap())
    }

    /// The same for clients who can show a certificate.
    fn open_for_workers(&self) -> Arc<Tls> {
        Arc::new(Tls::open(TlsConfig { client_ca: Some(self.path("workers.pem")), ..self.config() }).unwrap())
    }

    /// Somebody who trusts this server, speaks these versions, and shows a certificate of this authority.
    fn connector(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&Authority>,
    ) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("servers.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let (cert, key) = authority.vouch_for("worker-1");
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

async fn connect(server: &Server, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(server.address).await?;
    within(connector.connect(ServerName::try_from("localhost").unwrap(), socket)).await
}

/// The certificate that the server shows on this connection.
fn shown(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken_and_plain_http_is_not_answered() {
    let files = Files::new();
    let server = Server::secured(files.open(), Limits::default()).await;
    for (version, expected) in [(TLS12, ProtocolVersion::TLSv1_2), (TLS13, ProtocolVersion::TLSv1_3)] {
        let stream = connect(&server, &files.connector(&[version], None)).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(expected));
        assert_eq!(Client::on(stream).await.get("/healthz").await.text(), "ok");
    }
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    // It may be closed in the middle of an alert.
    drop(within(plain.read_to_end(&mut said)).await);
    assert!(!said.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&said));
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_answers_only_those_its_authority_vouches_for() {
    let files = Files::new();
    let server = Server::secured(files.open_for_workers(), Limits::default()).await;
    let stranger = Authority::new();
    for version in [TLS12, TLS13] {
        for (who, own) in [("nobody", None), ("a stranger", Some(&stranger))] {
            // With TLS 1.3 a client learns that it was refused when it first reads.
            let refused = match connect(&server, &files.connector(&[version], own)).await {
                Err(_) => true,
                Ok(stream) => {
                    let mut client = Client::on(stream).await;
                    client.try_ask(request("GET", "/healthz", &[])).await.is_err()
                }
            };
            assert!(refused, "{who} with {version:?}");
        }
        let stream = connect(&server, &files.connector(&[version], Some(&files.workers))).await.unwrap();
        assert_eq!(Client::on(stream).await.get("/healthz").await.text(), "ok");
    }
}

#[tokio::test]
async fn whoever_does_not_finish_the_handshake_is_sent_away_when_a_head_would_be() {
    let files = Files::new();
    let limits = Limits { header_read_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = Server::secured(files.open(), limits).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    // The beginning of a record that never ends.
    socket.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    let mut said = Vec::new();
    drop(within(socket.read_to_end(&mut said)).await);
    let stream = connect(&server, &files.connector(&[TLS13], None)).await.unwrap();
    assert_eq!(Client::on(stream).await.get("/healthz").await.text(), "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load_without_a_request_being_dropped() {
    const CALLERS: usize = 8;
    let files = Files::new();
    let tls = files.open();
    let server = Server::secured(tls.clone(), Limits::default()).await;
    let connector = files.connector(&[TLS12, TLS13], None);
    let before = shown(&connect(&server, &connector).await.unwrap());
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let (over, answered, connector, address) =
            (over.clone(), answered.clone(), connector.clone(), server.address);
        callers.push(tokio::spawn(async move {
            let fresh = || async {
                let socket = TcpStream::connect(address).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                Client::on(within(connector.connect(name, socket)).await.unwrap()).await
            };
            let mut client = fresh().await;
            while !over.load(Ordering::Relaxed) {
                // Half of them stay on one connection, the others come anew each time.
                if caller % 2 == 0 {
                    client = fresh().await;
                }
                assert_eq!(client.get("/healthz").await.text(), "ok");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..20 {
        files.renew();
        tls.reload().unwrap();
        // Every caller has had answers in between.
        let until = answered.load(Ordering::Relaxed) + 2 * CALLERS;
        within(async {
            while answered.load(Ordering::Relaxed) < until {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let after = shown(&connect(&server, &connector).await.unwrap());
    assert_ne!(before, after);
    assert_eq!(after, CertificateDer::from_pem_file(files.path("cert.pem")).unwrap().to_vec());
}

#[test]
fn files_that_do_not_fit_leave_everything_as_it_was() {
    let files = Files::new();
    let tls = files.open();
    let other = files.servers.vouch_for("localhost").1;
    fs::write(files.path("key.pem"), other).unwrap();
    let wrong = tls.reload().unwrap_err();
    assert_eq!(wrong.key, "tls.key");
    assert!(wrong.message.contains("is not the key of the certificate in"), "{wrong}");
    fs::write(files.path("cert.pem"), "no certificate").unwrap();
    let wrong = tls.reload().unwrap_err();
    assert_eq!(wrong.key, "tls.cert");
    assert!(wrong.message.contains("there is no certificate in"), "{wrong}");
}
