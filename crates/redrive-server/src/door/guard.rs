//! What is looked at before anything else: how large a head is, for which name the request was meant, and whether a page
//! of somebody else's sent it. All pure: a request's head in, a refusal or nothing out.

use std::net::{IpAddr, SocketAddrV4};

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, header};

use super::refusal::Refusal;

/// How long a URL may be.
pub const URL_BYTES_MAX: usize = 8 << 10;
/// How many headers a request may have.
pub const HEADERS_MAX: usize = 64;
/// How many bytes its headers may have, names and values together.
pub const HEADER_BYTES_MAX: usize = 16 << 10;

/// Refuses a URL or headers that nobody needs so long.
pub(super) fn check_size(head: &Parts) -> Result<(), Refusal> {
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if authority + path > URL_BYTES_MAX {
        return Err(Refusal::new(
            414,
            "RETRY_URL_TOO_LONG",
            format!("the URL is longer than {URL_BYTES_MAX} bytes"),
        )
        .hint("put long lists into the body"));
    }
    let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if head.headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        let message =
            format!("the request has over {HEADERS_MAX} headers, or over {HEADER_BYTES_MAX} bytes of them");
        return Err(
            Refusal::new(431, "RETRY_HEADERS_TOO_LARGE", message).hint("send fewer or shorter headers")
        );
    }
    Ok(())
}

/// The names under which the server answers. A page that has its own name point at this machine comes with that name,
/// and is refused.
#[derive(Clone, Debug)]
pub struct Hosts {
    names: Vec<String>,
    /// Off loopback everybody needs a token, and an address cannot be rebound: only names can.
    any_address: bool,
}

impl Hosts {
    /// Loopback, and these names; with the address at which the server listens.
    pub fn new(names: impl IntoIterator<Item = String>, listen: IpAddr) -> Hosts {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Hosts { names, any_address: !listen.is_loopback() }
    }

    /// Refuses a request that was meant for another.
    pub(super) fn check(&self, authority: &str) -> Result<(), Refusal> {
        if self.allows(authority) {
            return Ok(());
        }
        let message = format!("this server does not answer for {authority:?}");
        let hint = "use 127.0.0.1 or localhost, or add the name to `hosts` in the config";
        Err(Refusal::new(421, "RETRY_MISDIRECTED", message).hint(hint))
    }

    fn allows(&self, authority: &str) -> bool {
        let is_allowed = |address: IpAddr| address.to_canonical().is_loopback() || self.any_address;
        // As most clients of a server on their own machine write it, and told sooner than a name.
        if authority.parse::<SocketAddrV4>().is_ok_and(|address| is_allowed((*address.ip()).into())) {
            return true;
        }
        let Ok(authority) = authority.parse::<http::uri::Authority>() else { return false };
        let text = authority.as_str();
        // Whatever follows the name must be a port, and nothing may stand before it.
        let host = authority.host();
        let rest = text.strip_prefix(host);
        let is_port = |rest: &str| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        };
        if !rest.is_some_and(is_port) {
            return false;
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        match host.parse::<IpAddr>() {
            Ok(address) if is_allowed(address) => true,
            _ => host == "localhost" || self.names.contains(&host),
        }
    }
}

/// For whom a request was meant: its `Host`, or what HTTP/2 has instead. There must be exactly one answer.
pub(super) fn authority(head: &Parts) -> Result<&str, Refusal> {
    let unclear = || {
        Refusal::new(400, "RETRY_MISDIRECTED", "the request does not say clearly for which host it is meant")
            .hint("send one Host header, and the same name in the URL if it has one")
    };
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let header = hosts.next().map(|host| host.to_str().map_err(|_| unclear())).transpose()?;
    let url = head.uri.authority().map(http::uri::Authority::as_str);
    if hosts.next().is_some() {
        return Err(unclear());
    }
    match (url, header) {
        (Some(url), Some(header)) if !url.eq_ignore_ascii_case(header) => Err(unclear()),
        (Some(one), _) | (None, Some(one)) => Ok(one),
        (None, None) => Err(unclear()),
    }
}

/// Refuses what a browser sends for a page of another site, unless it only reads.
///
/// Browsers say where a request comes from (`Sec-Fetch-Site`), or at least from which page (`Origin`). What has
/// neither was not sent by a browser on behalf of a page.
pub(super) fn check_cross_site(head: &Parts, authority: &str) -> Result<(), Refusal> {
    if matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS) || is_own(&head.headers, authority)
    {
        return Ok(());
    }
    Err(Refusal::new(403, "RETRY_CROSS_SITE", "a page of another site may not change anything here")
        .hint("call the API from your own server, or from a page that this server delivers"))
}

/// Refuses what a proxy passed on to a server that is open to everybody on its own machine: whoever sent it is not
/// there, although the proxy is.
pub(super) fn check_direct(head: &Parts) -> Result<(), Refusal> {
    static MARKS: [HeaderName; 6] = [
        header::FORWARDED,
        header::VIA,
        HeaderName::from_static("x-forwarded-for"),
        HeaderName::from_static("x-forwarded-host"),
        HeaderName::from_static("x-forwarded-proto"),
        HeaderName::from_static("x-real-ip"),
    ];
    match MARKS.iter().find(|mark| head.headers.contains_key(*mark)) {
        None => Ok(()),
        Some(mark) => Err(Refusal::new(
            401,
            "RETRY_AUTH_REQUIRED",
            format!("a proxy has passed this on ({mark}), and without tokens only this machine is served"),
        )
        .hint("start the server with --token-file FILE, and send that token")),
    }
}

/// Whether a request comes from a page of ours, or from none. Of several words on that, each must say so: which of them
/// is the browser's, nobody knows.
fn is_own(headers: &HeaderMap, authority: &str) -> bool {
    const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let said = |name| headers.get_all(name).iter().filter(|value| !value.is_empty());
    if said(SITE).next().is_some() {
        return said(SITE).all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    }
    said(header::ORIGIN).all(|origin| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        host.is_some_and(|host| !host.is_empty() && host.eq_ignore_ascii_case(authority))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use std::net::Ipv4Addr;

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn loopback_and_the_configured_names_are_answered_and_nothing_else() {
        let names = ["Redrive.Example".to_owned(), "192.0.2.7".to_owned()];
        let hosts = Hosts::new(names, Ipv4Addr::LOCALHOST.into());
        for host in [
            "localhost",
            "localhost:7373",
            "LOCALHOST",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]",
            "[::1]:7373",
            "redrive.example",
            "REDRIVE.example:443",
            "192.0.2.7:7373",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "",
            "evil.test",
            "evil.test:7373",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "redrive.example.evil.test",
            "user@localhost",
            "localhost:x",
            "localhost:",
            "10.0.0.1",
            "10.0.0.1:7373",
            "0.0.0.0",
            "[::]",
            "localhost/evil",
            "evil.test#localhost",
            "127.0.0.1:99999",
            "local host",
            "2130706433",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
    }

    #[test]
    fn off_loopback_an_address_is_answered_and_a_strange_name_is_not() {
        let hosts = Hosts::new([], Ipv4Addr::UNSPECIFIED.into());
        assert!(hosts.allows("10.1.2.3:7373") && hosts.allows("[2001:db8::1]:7373"));
        assert!(!hosts.allows("evil.test") && !hosts.allows("10.1.2.3.evil.test"));
    }

    #[test]
    fn a_request_is_meant_for_one_host() {
        assert_eq!(authority(&head("GET", "/", &[("host", "a.test")])).unwrap(), "a.test");
        assert_eq!(authority(&head("GET", "http://a.test/", &[])).unwrap(), "a.test");
        assert_eq!(authority(&head("GET", "http://a.test/", &[("host", "A.test")])).unwrap(), "a.test");
        for unclear in [
            head("GET", "/", &[]),
            head("GET", "/", &[("host", "a.test"), ("host", "b.test")]),
            head("GET", "http://a.test/", &[("host", "b.test")]),
        ] {
            assert_eq!(authority(&unclear).unwrap_err().status, 400);
        }
    }

    #[test]
    fn of_several_words_on_where_a_request_comes_from_each_must_say_that_it_is_ours() {
        let own = |headers: &[(&str, &str)]| {
            check_cross_site(&head("POST", "/", headers), "localhost:7373").is_ok()
        };
        for names in [
            ["sec-fetch-site", "same-origin", "cross-site"],
            ["origin", "http://localhost:7373", "http://evil.test"],
        ] {
            let [name, ours, theirs] = names;
            assert!(own(&[(name, ours)]) && own(&[(name, ours), (name, ours)]) && !own(&[(name, theirs)]));
            for both in [[ours, theirs], [theirs, ours]] {
                assert!(!own(&both.map(|value| (name, value))), "{name}: {both:?}");
            }
            assert!(!own(&[(name, ""), (name, theirs)]), "{name}: an empty one says nothing");
        }
        assert!(own(&[]) && own(&[("origin", "")]));
    }

    #[test]
    fn what_a_proxy_has_marked_was_not_sent_from_here() {
        assert!(check_direct(&head("GET", "/", &[("host", "localhost")])).is_ok());
        for mark in
            ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"]
        {
            assert_eq!(check_direct(&head("GET", "/", &[(mark, "x")])).unwrap_err().status, 401, "{mark}");
        }
    }
}
