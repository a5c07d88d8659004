//! With what the server proves who it is, and how it finds out who comes: read from files at the start, and again when it
//! is told to, while it goes on serving.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::config::TlsConfig;
use crate::pem;

/// What is offered to a client that speaks both, in this order.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// TLS 1.2 or newer, with certificates that can be replaced under way.
pub struct Tls {
    files: TlsConfig,
    current: RwLock<Arc<ServerConfig>>,
}

/// Why the files are of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsMistake {
    /// The key of the configuration that names the file: `tls.cert`.
    pub key: &'static str,
    /// What is wrong with it, and what to write instead.
    pub message: String,
}

impl fmt::Display for TlsMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for TlsMistake {}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// What is wrong with which of them.
    pub fn open(files: TlsConfig) -> Result<Tls, TlsMistake> {
        let current = RwLock::new(Arc::new(read(&files)?));
        Ok(Tls { files, current })
    }

    /// Reads the files again, for connections that are made from now on. Those that are open go on as they are.
    ///
    /// # Errors
    ///
    /// What is wrong with which file. Then everything stays as it was.
    pub fn reload(&self) -> Result<(), TlsMistake> {
        let fresh = Arc::new(read(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read(files: &TlsConfig) -> Result<ServerConfig, TlsMistake> {
    let chain = pem::certificates(&files.cert).map_err(|message| mistake("tls.cert", message))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
        let key = files.key.display();
        mistake(
            "tls.key",
            format!("there is no private key in {key} ({error}); write the path of a PEM file"),
        )
    })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("the provider has cipher suites for both versions");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = pem::roots(path).map_err(|message| mistake("tls.client_ca", message))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| {
                mistake("tls.client_ca", format!("{} cannot vouch for clients: {error}", path.display()))
            })?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let (cert, key) = (files.cert.display(), files.key.display());
        mistake("tls.key", format!("{key} is not the key of the certificate in {cert}: {error}"))
    })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(config)
}

fn mistake(key: &'static str, message: String) -> TlsMistake {
    TlsMistake { key, message }
}
