//! The guard on the way out: no spelling of an address, no name, no redirect and no answer of a resolver reaches what
//! is not the open internet; and whatever a far side does, a request ends in time with the right name for its trouble.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure real time, and run themselves in other environments"
)]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "egress/corpus.rs"]
mod corpus;
#[path = "egress/hostile.rs"]
mod hostile;
#[path = "egress/rebinding.rs"]
mod rebinding;
#[path = "egress/secure.rs"]
mod secure;
#[expect(dead_code, reason = "each test needs another part of it")]
#[path = "support/target.rs"]
mod target;

use http::Method;
use redrive_server::egress::{Egress, EgressError, EgressPolicy, Request, Response};

/// A guard that opens these.
fn opened(allow: &[&str]) -> Egress {
    Egress::new(EgressPolicy { allow: allow.iter().map(|text| text.parse().unwrap()).collect() })
}

async fn get(egress: &Egress, url: &str) -> Result<Response, EgressError> {
    egress.send(Request::new(Method::GET, url)?).await
}

/// The guard is worth something only if there is no way around it.
#[test]
fn no_other_code_of_the_server_opens_connections() {
    fn visit(folder: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                visit(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let dials = [
                "TcpStream::connect",
                "TcpSocket",
                "UdpSocket",
                "lookup_host",
                "to_socket_addrs",
                "HttpConnector",
                "reqwest",
            ];
            if dials.iter().any(|word| text.contains(word)) {
                found.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    visit(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found.sort();
    // In remote.rs an operator's own command line asks the server that the operator has named; in over_http.rs the
    // benchmark asks the server that it has started itself; bind.rs listens, and nobody but its test asks there.
    assert_eq!(
        found,
        ["bind.rs", "connect.rs", "over_http.rs", "remote.rs"],
        "requests that somebody else chooses go through Egress::send"
    );
}
