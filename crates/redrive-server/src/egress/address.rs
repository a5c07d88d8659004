//! Which addresses are the open internet, and which are somebody's inside. Pure: an address in, a verdict out.
//!
//! The tables are the IANA special-purpose registries. Where a registry calls an entry of them globally reachable
//! (AS112, AMT, ORCHIDv2 …) it is denied all the same: nobody serves an HTTP API there. Not here: what an operator
//! allows in spite of a verdict (`policy.rs`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// On the open internet: may be reached by anyone, so also by us.
    Global,
    /// Of special purpose. An operator may open it, also as part of a wider range.
    Special(
        /// What it is for: `private use`.
        &'static str,
    ),
    /// This machine, or the place where a cloud keeps its credentials: an operator must name it, no wider range
    /// opens it.
    Guarded(
        /// What it is for: `loopback`.
        &'static str,
    ),
}

/// Judges one address. An address that carries an IPv4 address inside is judged by that one.
pub fn verdict(address: IpAddr) -> Verdict {
    match canonical(address) {
        IpAddr::V4(v4) => verdict_v4(v4),
        IpAddr::V6(v6) => verdict_v6(v6),
    }
}

/// The address that a packet ends up at: the IPv4 address inside a mapped, compatible or NAT64 one, else itself.
pub fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let segments = v6.segments();
    let carries_v4 = match segments {
        // `::` and `::1` are addresses of their own, not 0.0.0.0 and 0.0.0.1.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => false,
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] => true,
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => true,
        _ => false,
    };
    if carries_v4 {
        let [.., high, low] = segments;
        IpAddr::V4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)))
    } else {
        address
    }
}

/// One line of a table: the network, the length of its prefix, and what is said of it.
struct Range<A>(A, u32, Verdict);

const fn v4([a, b, c, d]: [u8; 4], prefix: u32, verdict: Verdict) -> Range<Ipv4Addr> {
    Range(Ipv4Addr::new(a, b, c, d), prefix, verdict)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u32, verdict: Verdict) -> Range<Ipv6Addr> {
    Range(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix, verdict)
}

use Verdict::{Global, Guarded, Special};

/// The first line that matches speaks: single addresses stand before the networks around them.
const V4: &[Range<Ipv4Addr>] = &[
    // Where clouds answer their own machines. The last is a public address that leads to the host under a machine.
    v4([169, 254, 0, 0], 16, Guarded("link-local, where cloud metadata is served")),
    v4([100, 100, 100, 200], 32, Guarded("cloud metadata")),
    v4([192, 0, 0, 192], 32, Guarded("cloud metadata")),
    v4([168, 63, 129, 16], 32, Guarded("cloud metadata")),
    v4([127, 0, 0, 0], 8, Guarded("loopback")),
    // Linux connects 0.0.0.0 to itself.
    v4([0, 0, 0, 0], 8, Guarded("this host")),
    v4([10, 0, 0, 0], 8, Special("private use")),
    v4([100, 64, 0, 0], 10, Special("shared by a carrier")),
    v4([172, 16, 0, 0], 12, Special("private use")),
    v4([192, 0, 0, 0], 24, Special("protocol assignments")),
    v4([192, 0, 2, 0], 24, Special("documentation")),
    v4([192, 31, 196, 0], 24, Special("AS112")),
    v4([192, 52, 193, 0], 24, Special("AMT")),
    v4([192, 88, 99, 0], 24, Special("6to4 relay")),
    v4([192, 168, 0, 0], 16, Special("private use")),
    v4([192, 175, 48, 0], 24, Special("AS112")),
    v4([198, 18, 0, 0], 15, Special("benchmarking")),
    v4([198, 51, 100, 0], 24, Special("documentation")),
    v4([203, 0, 113, 0], 24, Special("documentation")),
    v4([224, 0, 0, 0], 4, Special("multicast")),
    v4([240, 0, 0, 0], 4, Special("reserved")),
];

/// The first line that matches speaks; what no line matches is not global.
const V6: &[Range<Ipv6Addr>] = &[
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, Guarded("loopback")),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, Guarded("this host")),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, Guarded("cloud metadata")),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, Guarded("cloud metadata")),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Special("unique local")),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Special("link-local")),
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Special("site-local")),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Special("multicast")),
    // NAT64 for local use: how long its prefix is, and so where the IPv4 address sits, only its operator knows.
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Special("local NAT64")),
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Special("discard only")),
    // Inside 2000::/3, what is not the open internet. 2001::/23 holds Teredo, benchmarking, ORCHID and their like.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Special("Teredo")),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Special("benchmarking")),
    v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0], 28, Special("ORCHID")),
    v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0], 28, Special("ORCHID")),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Special("protocol assignments")),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Special("documentation")),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Special("6to4")),
    v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, Special("AS112")),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Special("documentation")),
    v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, Global),
];

fn verdict_v4(address: Ipv4Addr) -> Verdict {
    let inside = |network: Ipv4Addr, prefix: u32| {
        (address.to_bits() ^ network.to_bits()).checked_shr(32 - prefix).unwrap_or(0) == 0
    };
    V4.iter().find(|Range(network, prefix, _)| inside(*network, *prefix)).map_or(Global, |range| range.2)
}

fn verdict_v6(address: Ipv6Addr) -> Verdict {
    let inside = |network: Ipv6Addr, prefix: u32| {
        (address.to_bits() ^ network.to_bits()).checked_shr(128 - prefix).unwrap_or(0) == 0
    };
    let found = V6.iter().find(|Range(network, prefix, _)| inside(*network, *prefix));
    found.map_or(Special("not assigned to the open internet"), |range| range.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judged(text: &str) -> Verdict {
        verdict(text.parse().unwrap())
    }

    /// The registries as they are printed: first and last address of each entry, and one inside.
    const NOT_GLOBAL: &[&str] = &[
        // IPv4 special-purpose registry
        "0.0.0.0 0.0.0.1 0.255.255.255",
        "10.0.0.0 10.1.2.3 10.255.255.255",
        "100.64.0.0 100.100.100.100 100.127.255.255",
        "127.0.0.0 127.0.0.1 127.255.255.255",
        "169.254.0.0 169.254.169.254 169.254.255.255",
        "172.16.0.0 172.20.1.1 172.31.255.255",
        "192.0.0.0 192.0.0.8 192.0.0.9 192.0.0.10 192.0.0.170 192.0.0.171 192.0.0.255",
        "192.0.2.0 192.0.2.1 192.0.2.255",
        "192.31.196.0 192.31.196.1 192.31.196.255",
        "192.52.193.0 192.52.193.1 192.52.193.255",
        "192.88.99.0 192.88.99.1 192.88.99.2 192.88.99.255",
        "192.168.0.0 192.168.1.1 192.168.255.255",
        "192.175.48.0 192.175.48.1 192.175.48.255",
        "198.18.0.0 198.19.0.1 198.19.255.255",
        "198.51.100.0 198.51.100.7 198.51.100.255",
        "203.0.113.0 203.0.113.7 203.0.113.255",
        "224.0.0.0 239.1.1.1 239.255.255.255",
        "240.0.0.0 250.0.0.1 255.255.255.254 255.255.255.255",
        "168.63.129.16",
        // IPv6 special-purpose registry
        ":: ::1",
        "::ffff:0:0 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:255.255.255.255",
        "::2 ::127.0.0.1 ::10.0.0.1 ::169.254.169.254 ::ffff",
        "::fffe:0:0 ::1:0:0 ::ffff:0:808:808",
        "64:ff9b:: 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254",
        "64:ff9b:1:: 64:ff9b:1::8.8.8.8 64:ff9b:1:808:8:800:: 64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
        "64:ff9b:0:0:0:1:808:808 64:ff9b:2:: 65::",
        "100:: 100::1 100::ffff:ffff:ffff:ffff 100:0:0:1::",
        "2001:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:0:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:1::1 2001:1::2 2001:1::3 2001:2:: 2001:2:0:ffff:ffff:ffff:ffff:ffff 2001:3:: 2001:4:112::",
        "2001:10:: 2001:1f:ffff:ffff:ffff:ffff:ffff:ffff 2001:20:: 2001:2f::1 2001:30:: 2001:1ff:ffff::",
        "2001:db8:: 2001:db8::1 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
        "2002:: 2002:7f00:1:: 2002:a00:1::1 2002:808:808::1 2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "2620:4f:8000:: 2620:4f:8000:ffff:ffff:ffff:ffff:ffff",
        "3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
        "4000:: 5f00:: 5f00::1 8000:: e000::",
        "fc00:: fd00:ec2::254 fd20:ce::254 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fe00:: fe80:: fe80::1 febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff fec0:: feff::1",
        "ff00:: ff02::1 ff0e::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    ];

    /// The neighbours of the entries above, and addresses that people serve from.
    const GLOBAL: &[&str] = &[
        "1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0",
        "169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0",
        "192.31.195.255 192.31.197.0 192.52.192.255 192.52.194.0 192.88.98.255 192.88.100.0",
        "192.167.255.255 192.169.0.0 192.175.47.255 192.175.49.0 198.17.255.255 198.20.0.0",
        "198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255 8.8.8.8 93.184.216.34",
        "168.63.129.15 168.63.129.17",
        "2000:: 2000::1 2001:200:: 2001:db7:ffff:: 2001:db9:: 2001:4860:4860::8888 2003:: 2606:4700::1111",
        "2620:4f:7fff:ffff:: 2620:4f:8001:: 2a00:1450:4001::1 3ffe:ffff:: 3fff:1000::",
        "::ffff:8.8.8.8 ::8.8.8.8 64:ff9b::8.8.8.8",
    ];

    #[test]
    fn every_entry_of_the_registries_is_refused_to_its_edges() {
        for line in NOT_GLOBAL {
            for address in line.split(' ') {
                assert_ne!(judged(address), Verdict::Global, "{address}");
            }
        }
    }

    #[test]
    fn the_neighbours_of_the_registries_are_the_open_internet() {
        for line in GLOBAL {
            for address in line.split(' ') {
                assert_eq!(judged(address), Verdict::Global, "{address}");
            }
        }
    }

    #[test]
    fn this_machine_and_cloud_metadata_are_guarded_in_every_form() {
        let guarded = "127.0.0.1 127.9.9.9 0.0.0.0 169.254.169.254 169.254.1.1 100.100.100.200 192.0.0.192 \
                       168.63.129.16 :: ::1 fd00:ec2::254 fd20:ce::254 ::ffff:127.0.0.1 ::127.0.0.1 ::2 \
                       64:ff9b::127.0.0.1 ::ffff:169.254.169.254 64:ff9b::169.254.169.254 ::ffff:0.0.0.0";
        for address in guarded.split_whitespace() {
            assert!(matches!(judged(address), Verdict::Guarded(_)), "{address}");
        }
    }

    /// The same question, asked of the standard library and of bits, without the tables.
    fn v4_is_global(address: Ipv4Addr) -> bool {
        let [a, b, c, d] = address.octets();
        !(a == 0
            || address.is_private()
            || (a == 100 && b & 0xc0 == 64)
            || address.is_loopback()
            || address.is_link_local()
            || address.is_documentation()
            || address.is_multicast()
            || address.is_broadcast()
            || a >= 240
            || (a == 198 && b & 0xfe == 18)
            || matches!(
                [a, b, c],
                [192, 0, 0] | [192, 31, 196] | [192, 52, 193] | [192, 88, 99] | [192, 175, 48]
            )
            || [a, b, c, d] == [168, 63, 129, 16])
    }

    fn v6_is_global(address: Ipv6Addr) -> bool {
        let inner = |bits: u128| Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap());
        let bits = address.to_bits();
        if address.is_loopback() || address.is_unspecified() {
            return false;
        }
        if bits >> 32 == 0 || bits >> 32 == 0xffff || bits >> 32 == 0x0064_ff9b << 64 {
            return v4_is_global(inner(bits));
        }
        let top = |length: u32| bits >> (128 - length);
        top(3) == 1
            && top(23) != 0x2001_0000 >> 9
            && top(32) != 0x2001_0db8
            && top(16) != 0x2002
            && top(48) != 0x2620_004f_8000
            && top(20) != 0x3fff0
    }

    /// Addresses that lie beside an edge as often as anywhere.
    fn any_v6() -> impl Strategy<Value = Ipv6Addr> {
        let near: Vec<u128> = V6.iter().map(|Range(network, _, _)| network.to_bits()).collect();
        let mapped = [0xffff_u128 << 32, 0, 0x0064_ff9b << 96];
        prop_oneof![
            any::<u128>(),
            (proptest::sample::select(near), any::<u128>(), 0..=128_u32)
                .prop_map(|(network, noise, keep)| network ^ noise.checked_shr(keep).unwrap_or(0)),
            (proptest::sample::select(mapped.to_vec()), any::<u32>())
                .prop_map(|(prefix, v4)| prefix | u128::from(v4)),
        ]
        .prop_map(Ipv6Addr::from_bits)
    }

    fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
        let near: Vec<u32> = V4.iter().map(|Range(network, _, _)| network.to_bits()).collect();
        prop_oneof![
            any::<u32>(),
            (proptest::sample::select(near), any::<u32>(), 0..=32_u32)
                .prop_map(|(network, noise, keep)| network ^ noise.checked_shr(keep).unwrap_or(0)),
        ]
        .prop_map(Ipv4Addr::from_bits)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000_000))]

        #[test]
        fn the_tables_agree_with_arithmetic_on_ipv4(address in any_v4()) {
            prop_assert_eq!(verdict(address.into()) == Verdict::Global, v4_is_global(address));
        }

        #[test]
        fn the_tables_agree_with_arithmetic_on_ipv6(address in any_v6()) {
            prop_assert_eq!(verdict(address.into()) == Verdict::Global, v6_is_global(address));
        }

        #[test]
        fn an_address_inside_another_is_judged_as_itself(address in any_v4()) {
            let bits = u128::from(address.to_bits());
            let plain = verdict(address.into());
            let mapped = Ipv6Addr::from_bits(0xffff << 32 | bits);
            let translated = Ipv6Addr::from_bits(0x0064_ff9b << 96 | bits);
            prop_assert_eq!(verdict(mapped.into()), plain);
            prop_assert_eq!(verdict(translated.into()), plain);
        }
    }
}
