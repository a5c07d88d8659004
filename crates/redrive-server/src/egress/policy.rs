//! What an operator opens in spite of the verdicts of `address.rs`: networks and names, each perhaps for one port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use url::Host;

use super::address::{Verdict, canonical, verdict};

/// Where outgoing requests may go beyond the open internet. Empty by default: nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressPolicy {
    /// What is opened.
    pub allow: Vec<Allow>,
}

/// One thing that is opened. As text: `10.0.0.0/8`, `10.0.0.5/32:8080`, `127.0.0.1`, `[::1]/128:9000`, or a name,
/// `internal.example:443`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Allow {
    /// Every address of a network.
    Network {
        /// The network.
        network: IpNet,
        /// On this port alone; on any if none is given.
        port: Option<u16>,
    },
    /// Whatever addresses a name has. Not if they are this machine's own or a cloud's metadata: those are opened by
    /// their address, so that nobody who writes DNS records can open them.
    Name {
        /// The name, in lower case.
        name: String,
        /// On this port alone; on any if none is given.
        port: Option<u16>,
    },
}

impl EgressPolicy {
    /// Whether a connection to this address may be made for a URL with this host.
    ///
    /// # Errors
    ///
    /// What the address is, for people: `loopback`.
    pub(super) fn permits(&self, host: &Host<String>, address: SocketAddr) -> Result<(), &'static str> {
        if let SocketAddr::V6(v6) = address
            && v6.scope_id() != 0
        {
            return Err("an address with a scope, which means something on this machine alone");
        }
        let (said, guarded) = match verdict(address.ip()) {
            Verdict::Global => return Ok(()),
            Verdict::Special(said) => (said, false),
            Verdict::Guarded(said) => (said, true),
        };
        let ip = canonical(address.ip());
        let opened = self.allow.iter().any(|allow| match allow {
            Allow::Network { network, port } => {
                let fits = !guarded || is_as_narrow_as_its_guard(network);
                fits && network.contains(&ip) && port.is_none_or(|port| port == address.port())
            }
            Allow::Name { name, port } => {
                let named = matches!(host, Host::Domain(domain) if without_final_dot(domain) == name);
                !guarded && named && port.is_none_or(|port| port == address.port())
            }
        });
        if opened { Ok(()) } else { Err(said) }
    }
}

/// Whether a network holds guarded addresses alone: `0.0.0.0/0` must not open loopback by the way.
fn is_as_narrow_as_its_guard(network: &IpNet) -> bool {
    let guarded = |ip: IpAddr| matches!(verdict(ip), Verdict::Guarded(_));
    let shortest = match network.network() {
        IpAddr::V4(v4) => match v4.octets() {
            [127 | 0, ..] => 8,
            [169, 254, ..] => 16,
            _ => 32,
        },
        IpAddr::V6(_) => 128,
    };
    network.prefix_len() >= shortest && guarded(network.network())
}

impl FromStr for Allow {
    type Err = String;

    fn from_str(text: &str) -> Result<Allow, String> {
        let unreadable = || {
            format!(
                "{text:?} opens nothing; write a network (\"10.0.0.0/8\"), one with a port (\"10.0.0.5/32:8080\", \
                 \"[::1]/128:9000\") or a name (\"internal.example:443\")"
            )
        };
        let (place, port) = split_port(text).ok_or_else(unreadable)?;
        if let Some(network) = network(place) {
            return Ok(Allow::Network { network: network?, port });
        }
        match Host::parse(place) {
            Ok(Host::Domain(name)) if is_name(&name) => {
                Ok(Allow::Name { name: without_final_dot(&name).to_owned(), port })
            }
            // `0x7f.1` is an address too, but an operator who opens it should see which.
            Ok(Host::Ipv4(v4)) => Err(format!("{text:?} is the address {v4}; write it so")),
            _ => Err(unreadable()),
        }
    }
}

/// The place and the port of `place:port`. An IPv6 address has its colons in brackets, or has no port.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let is_bare_v6 = !text.starts_with('[') && text.matches(':').count() > 1;
    match text.rsplit_once(':') {
        Some((place, port)) if !is_bare_v6 && !port.ends_with(']') && !port.contains('/') => {
            let port = port.parse().ok().filter(|port| *port != 0)?;
            Some((place, Some(port)))
        }
        _ => Some((text, None)),
    }
}

/// The network that `10.0.0.0/8`, `[::1]/128` or `::1` is; none if it is something else.
fn network(place: &str) -> Option<Result<IpNet, String>> {
    let (address, prefix) = place.split_once('/').map_or((place, None), |(a, p)| (a, Some(p)));
    let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address: IpAddr = address.parse().ok()?;
    let network = match prefix {
        None => IpNet::from(address),
        Some(prefix) => match prefix.parse().ok().and_then(|prefix| IpNet::new(address, prefix).ok()) {
            Some(network) => network,
            None => return Some(Err(format!("{place:?}: /{prefix} is no length of a prefix of it"))),
        },
    };
    // A host's bits behind the prefix are a slip of the pen: was it the host that was meant, or the network?
    if network.trunc() != network {
        let meant = network.trunc();
        return Some(Err(format!("{place:?} has bits behind its prefix; write {meant}, or {address} alone")));
    }
    if canonical(address) != address {
        let inner = canonical(address);
        return Some(Err(format!("{place:?} stands for {inner}; write that")));
    }
    Some(Ok(network))
}

/// Whether it can be the name of a host: a pattern such as `*.example` opens nothing.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = match self {
            Allow::Network { network: IpNet::V6(v6), port } => {
                write!(f, "[{}]/{}", v6.addr(), v6.prefix_len())?;
                port
            }
            Allow::Network { network, port } => {
                write!(f, "{network}")?;
                port
            }
            Allow::Name { name, port } => {
                f.write_str(name)?;
                port
            }
        };
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl TryFrom<String> for Allow {
    type Error = String;
    fn try_from(text: String) -> Result<Allow, String> {
        text.parse()
    }
}

impl From<Allow> for String {
    fn from(allow: Allow) -> String {
        allow.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> EgressPolicy {
        EgressPolicy { allow: allow.iter().map(|text| text.parse().unwrap()).collect() }
    }

    /// Whether `allow` opens `address`, asked for by a URL with the host `name` or with the address itself.
    fn opens(allow: &str, name: &str, address: &str) -> bool {
        let address: SocketAddr = address.parse().unwrap();
        policy(&[allow]).permits(&Host::Domain(name.to_owned()), address).is_ok()
    }

    #[test]
    fn nothing_special_is_open_by_default() {
        let host = Host::Domain("anything.example".to_owned());
        for address in ["127.0.0.1:80", "10.0.0.1:80", "169.254.169.254:80", "[::1]:80", "[fc00::1]:80"] {
            assert!(EgressPolicy::default().permits(&host, address.parse().unwrap()).is_err(), "{address}");
        }
        assert!(EgressPolicy::default().permits(&host, "93.184.216.34:80".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_network_opens_its_addresses_and_a_port_limits_it() {
        assert!(opens("10.0.0.0/8", "x", "10.9.9.9:80"));
        assert!(!opens("10.0.0.0/8", "x", "172.16.0.1:80"));
        assert!(opens("10.0.0.5/32:8080", "x", "10.0.0.5:8080"));
        assert!(!opens("10.0.0.5/32:8080", "x", "10.0.0.5:8081"));
        assert!(!opens("10.0.0.5/32:8080", "x", "10.0.0.6:8080"));
        assert!(opens("10.0.0.5:8080", "x", "10.0.0.5:8080"));
        assert!(opens("[fc00::]/7", "x", "[fd12::1]:443") && opens("fc00::/7", "x", "[fd12::1]:443"));
        // However the address is dressed, it is the one that was opened.
        assert!(opens("10.0.0.0/8", "x", "[::ffff:10.0.0.1]:80"));
        assert!(opens("10.0.0.0/8", "x", "[64:ff9b::10.0.0.1]:80"));
    }

    #[test]
    fn no_wide_network_opens_this_machine_or_cloud_metadata() {
        for wide in ["0.0.0.0/0", "64.0.0.0/2", "126.0.0.0/7", "168.0.0.0/5", "100.64.0.0/10"] {
            for guarded in ["127.0.0.1:80", "169.254.169.254:80", "0.0.0.0:80", "100.100.100.200:80"] {
                assert!(!opens(wide, "x", guarded), "{wide} opens {guarded}");
            }
        }
        for guarded in ["[::1]:80", "[::]:80", "[fd00:ec2::254]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(!opens("::/0", "x", guarded), "{guarded}");
            assert!(!opens("fd00::/8", "x", guarded), "{guarded}");
        }
    }

    #[test]
    fn an_entry_of_their_own_opens_them() {
        assert!(opens("127.0.0.0/8", "x", "127.0.0.1:80") && opens("127.0.0.1:80", "x", "127.0.0.1:80"));
        assert!(!opens("127.0.0.1:80", "x", "127.0.0.2:80") && !opens("127.0.0.1:80", "x", "127.0.0.1:81"));
        assert!(opens("[::1]/128:9000", "x", "[::1]:9000") && opens("::1", "x", "[::1]:1"));
        assert!(opens("169.254.0.0/16", "x", "169.254.169.254:80"));
        assert!(opens("169.254.169.254", "x", "169.254.169.254:80"));
        assert!(opens("fd00:ec2::254", "x", "[fd00:ec2::254]:80"));
        assert!(opens("100.100.100.200", "x", "100.100.100.200:80"));
    }

    #[test]
    fn a_name_opens_its_private_addresses_and_nothing_guarded() {
        assert!(opens("internal.example:443", "internal.example", "10.0.0.1:443"));
        assert!(opens("Internal.Example", "internal.example.", "10.0.0.1:443"));
        assert!(!opens("internal.example:443", "internal.example", "10.0.0.1:80"));
        assert!(!opens("internal.example", "other.example", "10.0.0.1:443"));
        assert!(!opens("internal.example", "a.internal.example", "10.0.0.1:443"));
        assert!(!opens("internal.example", "internal.example", "127.0.0.1:443"));
        assert!(!opens("internal.example", "internal.example", "169.254.169.254:443"));
        assert!(!opens("localhost", "localhost", "127.0.0.1:443"));
    }

    #[test]
    fn an_address_with_a_scope_is_refused_whatever_is_open() {
        let scoped = SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, 2));
        assert!(policy(&["fe80::/10"]).permits(&Host::Domain("x".to_owned()), scoped).is_err());
    }

    #[test]
    fn what_opens_nothing_says_what_to_write() {
        for text in
            ["", ":80", "10.0.0.0/33", "10.0.0.0/8:0", "10.0.0.0/8:99999", "[::1", "a b", "*.example", "a/8"]
        {
            assert!(text.parse::<Allow>().is_err(), "{text:?}");
        }
        assert_eq!(
            "10.0.0.5/8".parse::<Allow>().unwrap_err(),
            "\"10.0.0.5/8\" has bits behind its prefix; write 10.0.0.0/8, or 10.0.0.5 alone"
        );
        assert_eq!(
            "0x7f.1".parse::<Allow>().unwrap_err(),
            "\"0x7f.1\" is the address 127.0.0.1; write it so"
        );
        assert_eq!(
            "::ffff:127.0.0.1".parse::<Allow>().unwrap_err(),
            "\"::ffff:127.0.0.1\" stands for 127.0.0.1; write that"
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["10.0.0.0/8", "10.0.0.5/32:8080", "[::1]/128:9000", "internal.example:443", "a.example"]
        {
            let allow: Allow = text.parse().unwrap();
            assert_eq!(allow.to_string(), text);
            let policy: EgressPolicy = serde_json::from_value(serde_json::json!({"allow": [text]})).unwrap();
            assert_eq!(policy.allow, [allow]);
        }
        assert!(serde_json::from_str::<EgressPolicy>(r#"{"alow": []}"#).is_err());
    }
}
