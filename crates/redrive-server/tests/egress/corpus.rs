//! Every way to write an address that is not the open internet's, with canaries where the addresses lead.

use std::net::Ipv4Addr;
use std::process::Command;

use http::Method;
use redrive_server::egress::{EgressErrorKind, Redirects, Request};

use crate::target::{Reply, Target, answer};
use crate::{get, opened};

/// Addresses that an inside has: this machine, its neighbours, its cloud.
const INSIDE: &[Ipv4Addr] = &[
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(127, 255, 255, 254),
    Ipv4Addr::new(0, 0, 0, 0),
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(100, 64, 0, 1),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(172, 16, 0, 1),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(192, 168, 1, 1),
    Ipv4Addr::new(198, 18, 0, 1),
    Ipv4Addr::new(255, 255, 255, 255),
];

/// Every way in which a parser somewhere takes an IPv4 address.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let bits = address.to_bits();
    let (low_three, low_two) = (bits & 0x00ff_ffff, bits & 0xffff);
    let (high, low) = (bits >> 16, bits & 0xffff);
    let wide = |text: &str| {
        text.chars()
            .map(|c| c.to_digit(10).map_or(c, |n| char::from_u32(0xff10 + n).unwrap()))
            .collect::<String>()
    };
    let circled = |n: u8| {
        n.to_string()
            .chars()
            .map(|c| match c.to_digit(10).unwrap() {
                0 => '⓪',
                n => char::from_u32(0x2460 + n - 1).unwrap(),
            })
            .collect::<String>()
    };
    let escaped: String = address.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect();
    vec![
        address.to_string(),
        format!("{address}."),
        bits.to_string(),
        format!("{bits:#x}"),
        format!("{bits:#X}").replace("0X", "0x"),
        format!("0{bits:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0000{a:o}.{b}.{c:#x}.{d}"),
        format!("{a}.{low_three}"),
        format!("{a}.{b}.{low_two}"),
        format!("{a:#x}.{low_three:#x}"),
        wide(&address.to_string()),
        format!("{}.{}.{}.{}", circled(a), circled(b), circled(c), circled(d)),
        format!("{a}。{b}。{c}。{d}"),
        escaped,
        format!("[::ffff:{address}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:FFFF:{address}]"),
        format!("[::{address}]"),
        format!("[64:ff9b::{address}]"),
        format!("[64:ff9b:1::{address}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::1]"),
    ]
}

/// Hosts of other kinds: IPv6 addresses of an inside, and names that lead to it.
const HOSTS: &[&str] = &[
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "[::0001]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[::1%25lo]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[FD00:EC2::254]",
    "[fd20:ce::254]",
    "[ff02::1]",
    "[fec0::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[100::1]",
    "[5f00::1]",
    "[4000::1]",
    "[2001:10::1]",
    "[2001:20::1]",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "LocalHost",
    "ｌｏｃａｌｈｏｓｔ",
    "loc%61lhost",
];

/// URLs that seem to lead elsewhere than they do. `{port}` is the canary's.
const TRICKS: &[&str] = &[
    "http://93.184.216.34@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@93.184.216.34:{port}/",
    "http://a:b@127.0.0.1:{port}/",
    "http://@127.0.0.1:{port}/",
    "http://:@127.0.0.1:{port}/",
    "http://93.184.216.34\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@93.184.216.34/",
    "http://127.0.0.1:{port}#@93.184.216.34/",
    "http://127.0.0.1:{port}?@93.184.216.34/",
    "http:\\\\127.0.0.1:{port}\\",
    "http:/127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:////127.0.0.1:{port}/",
    "HTTP://127.0.0.1:{port}/",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/\r\nHost: a",
    "ht\ntp://127.0.0.1:{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1:{port} /",
    "http://0x7f.1:0{port}/",
    "http://127.0.0.1:00{port}/",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/_GET",
    "ws://127.0.0.1:{port}/",
    "wss://127.0.0.1:{port}/",
    "file://127.0.0.1:{port}/etc/passwd",
    "file:///etc/passwd",
    "dict://127.0.0.1:{port}/",
    "data:text/plain,x",
    "ldap://127.0.0.1:{port}/",
    "tftp://127.0.0.1:{port}/",
    "jar:http://127.0.0.1:{port}/!/",
    "unix:/run/x.sock",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}/",
    "http://127.0.0.1:{port}",
    "https://127.0.0.1:{port}/",
    "https://[::1]:{port}/",
    "https://localhost:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0:{port}/",
    "http://[::]:{port}/",
    "http://00000000177.0.0.1:{port}/",
    "http://1.1.1.1 &@127.0.0.1:{port}# @3.3.3.3/",
    "http://127.0.0.1:{port}:80/",
    "http://[127.0.0.1]:{port}/",
];

#[tokio::test]
async fn no_spelling_of_an_inner_address_reaches_it() {
    let canary_v6 = Target::listen("[::]:0", |_, _| answer(200, "", "canary")).await;
    let port = canary_v6.address.port();
    // Where [::] does not take IPv4 too, a second one does.
    let canary_v4 = tokio::net::TcpListener::bind(("0.0.0.0", port)).await;
    let mut corpus: Vec<String> = Vec::new();
    for address in INSIDE {
        corpus.extend(spellings(*address).into_iter().map(|host| format!("http://{host}:{port}/")));
    }
    corpus.extend(HOSTS.iter().map(|host| format!("http://{host}:{port}/")));
    corpus.extend(TRICKS.iter().map(|trick| trick.replace("{port}", &port.to_string())));
    assert!(corpus.len() >= 300, "{}", corpus.len());
    let egress = opened(&[]);
    let mut refused = 0;
    for url in &corpus {
        let error = get(&egress, url).await.expect_err(url);
        assert!(!error.was_sent(), "{url}: {error}");
        // With a final dot it is a name for the resolver alone, which may not know it.
        let unknown = error.kind() == EgressErrorKind::Resolve && url.contains("localhost.");
        let expected = [EgressErrorKind::Refused, EgressErrorKind::Invalid];
        assert!(unknown || expected.contains(&error.kind()), "{url}: {:?} {error}", error.kind());
        refused += usize::from(error.kind() == EgressErrorKind::Refused);
    }
    assert!(refused >= 270, "only {refused} of {} were refused by their address", corpus.len());
    assert_eq!(canary_v6.connections(), 0);
    if let Ok(canary) = canary_v4 {
        let accepted = tokio::time::timeout(std::time::Duration::from_millis(50), canary.accept()).await;
        assert!(accepted.is_err(), "the IPv4 canary was reached");
    }
    println!("{} URLs, {refused} refused by address, 0 connections", corpus.len());
}

#[tokio::test]
async fn the_canary_sings_when_it_is_allowed_to() {
    // Otherwise the test above could pass because nothing at all is reached.
    let canary = Target::start(|_, _| answer(200, "", "canary")).await;
    let egress = opened(&["127.0.0.0/8"]);
    let port = canary.address.port();
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "localhost", "[::ffff:127.0.0.1]", "①②⑦.⓪.⓪.①"]
    {
        let response = get(&egress, &format!("http://{host}:{port}/")).await.expect(host);
        assert_eq!(&response.body[..], b"canary", "{host}");
    }
    assert_eq!(canary.asked().len(), 6);
}

#[tokio::test]
async fn a_redirect_is_as_guarded_as_the_first_request() {
    let canary = Target::start(|_, _| answer(200, "", "canary")).await;
    let inside = canary.address.port();
    let hosts =
        ["127.0.0.2", "0x7f.0.0.2", "169.254.169.254", "[::1]", "localhost", "2130706434", "10.0.0.1"];
    for status in [301, 302, 303, 307, 308] {
        for host in hosts {
            let location = format!("location: http://{host}:{inside}/latest/meta-data\r\n");
            let start = Target::start(move |_, _| answer(status, &location, "")).await;
            // Only the first server's own address and port are open.
            let egress = opened(&[&format!("127.0.0.1:{}", start.address.port())]);
            let mut request = Request::new(Method::POST, &start.url("/")).unwrap();
            let kept = egress.send(request.clone()).await.unwrap();
            assert_eq!(kept.status.as_u16(), status, "unasked, a redirect is the answer");
            request.redirects = Redirects::Follow;
            let error = egress.send(request).await.unwrap_err();
            assert_eq!(error.kind(), EgressErrorKind::Refused, "{status} to {host}: {error}");
        }
    }
    assert_eq!(canary.connections(), 0);
}

#[tokio::test]
async fn at_most_three_redirects_are_followed() {
    let target = Target::start(|n, _| answer(302, &format!("location: /{}\r\n", n + 1), "")).await;
    let mut request = Request::new(Method::GET, &target.url("/0")).unwrap();
    request.redirects = Redirects::Follow;
    let last = opened(&["127.0.0.1"]).send(request).await.unwrap();
    assert_eq!((last.status.as_u16(), target.asked().len()), (302, 4));
}

#[tokio::test]
async fn credentials_stay_with_the_origin_they_were_written_for() {
    let other = Target::start(|_, _| answer(200, "", "there")).await;
    let location = format!("location: {}\r\n", other.url("/"));
    let first = Target::start(move |_, _| answer(307, &location, "")).await;
    let mut request = Request::new(Method::POST, &first.url("/")).unwrap();
    request.redirects = Redirects::Follow;
    for name in ["authorization", "cookie", "x-api-key", "webhook-signature", "accept"] {
        request.headers.insert(name, "secret".parse().unwrap());
    }
    opened(&["127.0.0.1"]).send(request).await.unwrap();
    let names: Vec<String> = other.asked()[0].headers.keys().cloned().collect();
    assert_eq!(names, ["accept", "content-length", "host"]);
}

/// Run by the test below, in an environment that names a proxy.
#[tokio::test]
#[ignore = "run by proxies_of_the_environment_get_nothing"]
async fn in_an_environment_with_proxies() {
    let target = Target::start(|_, _| answer(200, "", "direct")).await;
    let response = get(&opened(&["127.0.0.1"]), &target.url("/")).await.unwrap();
    assert_eq!(&response.body[..], b"direct");
    println!("went there directly");
}

#[tokio::test]
async fn proxies_of_the_environment_get_nothing() {
    let proxy = Target::start(|_, _| Reply::SayAndClose(String::new())).await;
    let address = proxy.url("/");
    let output = tokio::task::spawn_blocking(move || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "corpus::in_an_environment_with_proxies", "--ignored", "--nocapture"]);
        for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
            child.env(name, &address);
        }
        child.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap()
    });
    let output = output.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("went there directly"), "{said}");
    assert_eq!(proxy.connections(), 0);
}
