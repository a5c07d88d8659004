//! TLS as configured: the files that say who the server is, and who may come.

use std::path::PathBuf;

use super::check::{self, Checker};
use super::mistake::Place;
use crate::door::Tls;

/// The files, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and one that clients know.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who vouches for clients. With it, nobody comes in without a certificate from there.
    pub client_ca: Option<PathBuf>,
}

impl Checker<'_> {
    /// The files, if they are named and can be used as they are now.
    pub(super) fn tls(&mut self) -> Option<TlsConfig> {
        let cert = self.take("tls.cert", "", check::file);
        let key = self.take("tls.key", "", check::file);
        let client_ca = self.take("tls.client_ca", "", check::file);
        let (wanted, because_of) = match (cert, key) {
            (Some(cert), Some(key)) => return Some(self.usable(TlsConfig { cert, key, client_ca })),
            (Some(_), None) => ("tls.key", "tls.cert"),
            (None, Some(_)) => ("tls.cert", "tls.key"),
            (None, None) if client_ca.is_some() => ("tls.cert", "tls.client_ca"),
            (None, None) => return None,
        };
        // One that was written and cannot be read is said already.
        if self.node(wanted, "").is_none() {
            let message = format!("is needed with {because_of}; write the path of a PEM file");
            self.mistake(self.place(because_of), wanted, message);
        }
        None
    }

    fn usable(&mut self, files: TlsConfig) -> TlsConfig {
        if let Err(wrong) = Tls::open(files.clone()) {
            self.mistake(self.place(wrong.key), wrong.key, wrong.message);
        }
        files
    }

    fn place(&self, key: &'static str) -> Place {
        self.node(key, "").map_or(Place::Default, |node| node.place.clone())
    }
}
