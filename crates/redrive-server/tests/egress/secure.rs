//! Who is at the other end: certificates are checked against the name in the URL.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use redrive_server::egress::{Egress, EgressErrorKind, EgressPolicy};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::get;

/// A certificate that vouches for itself, for these names.
fn certificate(names: &[&str], expired: bool) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    if expired {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    }
    let signed = params.self_signed(&key).unwrap();
    (signed.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
}

/// A server that answers every connection over TLS, and its port.
async fn serve(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure").await;
        }
    });
    port
}

fn trusting(certificate: Option<&CertificateDer<'static>>) -> Egress {
    let mut roots = RootCertStore::empty();
    certificate.into_iter().for_each(|certificate| roots.add(certificate.clone()).unwrap());
    let policy = EgressPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()] };
    Egress::with_roots(policy, roots)
}

#[tokio::test]
async fn a_certificate_for_the_name_is_trusted() {
    let (certificate, key) = certificate(&["localhost"], false);
    let port = serve(certificate.clone(), key).await;
    let response = get(&trusting(Some(&certificate)), &format!("https://localhost:{port}/")).await.unwrap();
    assert_eq!(&response.body[..], b"secure");
}

#[tokio::test]
async fn a_certificate_that_is_wrong_is_a_failure_of_trust_and_nothing_is_sent() {
    for (what, name, expired, trusted) in [
        ("another name", "other.example", false, true),
        ("a time that is over", "localhost", true, true),
        ("nobody we know", "localhost", false, false),
    ] {
        let (certificate, key) = certificate(&[name], expired);
        let port = serve(certificate.clone(), key).await;
        let egress = trusting(trusted.then_some(&certificate));
        let error = get(&egress, &format!("https://localhost:{port}/")).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (EgressErrorKind::Tls, false), "{what}: {error}");
    }
}
