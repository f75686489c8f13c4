//! Which IP addresses belong to the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public internet, by the registries of special-purpose addresses
/// of IANA (RFC 6890).
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && b & 0xfe == 18);
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // Addresses that stand for one of version 4: mapped, NAT64, 6to4.
    let [.., seventh, eighth] = segments;
    let last = Ipv4Addr::from((u32::from(seventh) << 16) | u32::from(eighth));
    match segments {
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => return is_public_v4(last),
        [0x2002, high, low, ..] => {
            let inner = (u32::from(high) << 16) | u32::from(low);
            return is_public_v4(Ipv4Addr::from(inner));
        }
        _ => {}
    }
    // What is handed out to the public is in 2000::/3, but for documentation and special protocols.
    segments[0] & 0xe000 == 0x2000
        && !(segments[0] == 0x2001 && (segments[1] < 0x200 || segments[1] == 0xdb8))
        && segments[0] != 0x3fff
}

#[cfg(test)]
mod tests;
