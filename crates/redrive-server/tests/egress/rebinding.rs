//! A name whose address changes between two questions. It runs in a network namespace of its own, with a resolver that
//! says «public» once and «metadata service» the next time, and with servers at both addresses.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use redrive_server::egress::EgressErrorKind;

use crate::target::{Target, answer};
use crate::{get, opened};

const PUBLIC: [u8; 4] = [93, 184, 216, 34];
const METADATA: [u8; 4] = [169, 254, 169, 254];
const PRIVATE: [u8; 4] = [10, 9, 9, 9];
const REQUESTS: usize = 10_000;

/// What a name's address is, asked for the n-th time.
fn addresses_of(name: &str, n: usize) -> Vec<[u8; 4]> {
    match name {
        "private" => vec![PRIVATE],
        "metadata" => vec![METADATA],
        "both" => vec![METADATA, PUBLIC, PRIVATE],
        _ if n.is_multiple_of(2) => vec![PUBLIC],
        _ => vec![METADATA],
    }
}

/// A resolver whose answers are to be forgotten at once.
fn resolve(socket: &UdpSocket) {
    let mut question = [0_u8; 512];
    let mut asked = 0;
    while let Ok((length, from)) = socket.recv_from(&mut question) {
        let question = &question[..length];
        let Some(name_length) = question[12..].iter().position(|byte| *byte == 0) else { continue };
        let end = 12 + name_length + 5;
        let first_label = &question[13..13 + usize::from(question[12])];
        let mut addresses = Vec::new();
        if question[end - 3] == 1 {
            addresses = addresses_of(&String::from_utf8_lossy(first_label), asked);
            asked += 1;
        }
        let mut reply = question[..end].to_vec();
        reply[2..4].copy_from_slice(&[0x81, 0x80]);
        reply[6..12].copy_from_slice(&[0, u8::try_from(addresses.len()).unwrap(), 0, 0, 0, 0]);
        for address in addresses {
            reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            reply.extend(address);
        }
        let _ = socket.send_to(&reply, from);
    }
}

/// Run by the test below, inside the namespace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by a_name_that_changes_its_address_never_reaches_the_inner_one"]
async fn inside_the_namespace() {
    let resolver = UdpSocket::bind("127.0.0.1:53").unwrap();
    std::thread::spawn(move || resolve(&resolver));
    let public = Target::listen("93.184.216.34:80", |_, _| answer(200, "", "public")).await;
    let canary = Target::listen("169.254.169.254:80", |_, _| answer(200, "", "credentials")).await;
    let egress = opened(&[]);
    let (mut answered, mut refused) = (0, 0);
    for n in 0..REQUESTS {
        match get(&egress, "http://rebind.test/latest/meta-data").await {
            Ok(response) => {
                assert_eq!(&response.body[..], b"public", "request {n}");
                answered += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), EgressErrorKind::Refused, "request {n}: {error}");
                refused += 1;
            }
        }
    }
    names_that_lead_inside().await;
    assert_eq!(canary.connections(), 0, "the canary was reached");
    assert!(answered >= REQUESTS / 4 && refused >= REQUESTS / 4, "{answered} answered, {refused} refused");
    assert!(public.connections() >= 1);
    println!("{answered} answered by the public address, {refused} refused, 0 at the canary");
}

/// A name opens its private addresses where an operator has listed it, and never what is guarded.
async fn names_that_lead_inside() {
    let _private = Target::listen("10.9.9.9:80", |_, _| answer(200, "", "private")).await;
    for (allow, url, reached) in [
        (&[][..], "http://private.test/", None),
        (&[][..], "http://metadata.test/", None),
        (&[][..], "http://both.test/", Some("public")),
        (&["private.test:80"][..], "http://private.test/", Some("private")),
        (&["private.test:81"][..], "http://private.test/", None),
        (&["other.test"][..], "http://private.test/", None),
        (&["10.0.0.0/8"][..], "http://private.test/", Some("private")),
        (&["metadata.test", "0.0.0.0/0"][..], "http://metadata.test/", None),
    ] {
        match (get(&opened(allow), url).await, reached) {
            (Ok(response), Some(expected)) => assert_eq!(&response.body[..], expected.as_bytes(), "{url}"),
            (Err(error), None) => assert_eq!(error.kind(), EgressErrorKind::Refused, "{url}: {error}"),
            (other, _) => panic!("{url} with {allow:?}: {other:?}"),
        }
    }
}

/// Takes the namespace away again, whatever happens.
struct Namespace(String);

impl Namespace {
    fn new() -> Result<Namespace, String> {
        let name = format!("redrive-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Namespace(name.clone());
        let folder = Path::new("/etc/netns").join(&name);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            .map_err(|error| error.to_string())?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        for address in ["93.184.216.34/32", "169.254.169.254/32", "10.9.9.9/32"] {
            ip(&["-n", &name, "address", "add", address, "dev", "lo"])?;
        }
        Ok(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.0]);
        let _ = std::fs::remove_dir_all(Path::new("/etc/netns").join(&self.0));
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))),
    }
}

#[test]
fn a_name_that_changes_its_address_never_reaches_the_inner_one() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => {
            println!("skipped: it needs a network namespace, which only root can make here ({})", why.trim());
            return;
        }
    };
    let output = Command::new("ip")
        .args(["netns", "exec", &namespace.0])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "rebinding::inside_the_namespace", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("0 at the canary"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    print!("{said}");
}
