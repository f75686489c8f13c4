//! Where callbacks may go: not to whom only this machine can reach, unless the settings say so.
//!
//! Whoever may enqueue names the address. A name is looked up when a callback is sent, and only public
//! addresses are taken from what it resolves to, so that no answer of a name server leads elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::QueueError;

/// Refuses what is no address of a callback.
///
/// # Errors
/// [`QueueError::Invalid`].
pub(crate) fn check(url: &str, private_too: bool) -> Result<(), QueueError> {
    let invalid = |reason: String| {
        Err(QueueError::Invalid {
            what: "callback_url",
            reason,
        })
    };
    let parsed = match Url::parse(url) {
        Ok(parsed) => parsed,
        Err(error) => return invalid(error.to_string()),
    };
    if !matches!(parsed.scheme(), "http" | "https") {
        return invalid("it must begin with http:// or https://".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return invalid("it must not hold a user name or a password".to_owned());
    }
    let host = parsed.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) if !private_too && !is_public(address) => invalid(format!(
            "{address} is not a public address: queue.callback_private allows it"
        )),
        _ => Ok(()),
    }
}

/// Looks names up and leaves out addresses that are not public.
pub(crate) struct PublicResolver {
    pub private_too: bool,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private_too = self.private_too;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found
                .filter(|address| private_too || is_public(address.ip()))
                .collect();
            if allowed.is_empty() {
                let name = name.as_str();
                let reason =
                    format!("{name} has no public address: queue.callback_private allows others");
                return Err(reason.into());
            }
            let allowed: Addrs = Box::new(allowed.into_iter());
            Ok(allowed)
        })
    }
}

/// Whether an address is one of the public internet, by the registries of special-purpose addresses of
/// IANA (RFC 6890).
fn is_public(address: IpAddr) -> bool {
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
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        let public = [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ];
        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        let special = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "192.0.0.8",
            "::",
            "::1",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001:db8::1",
        ];
        for address in special {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        check("https://example.org/done?x=1", false).unwrap();
        check("http://127.0.0.1:8080/done", true).unwrap();
        let refused = [
            "ftp://example.org",
            "example.org",
            "https://user@example.org",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://169.254.169.254/latest/meta-data",
        ];
        for url in refused {
            let refused = check(url, false).unwrap_err().to_string();
            assert!(refused.contains("callback_url"), "{url}: {refused}");
        }
    }

    #[tokio::test]
    async fn a_name_leads_to_no_private_address() {
        let resolver = PublicResolver { private_too: false };
        assert!(
            resolver
                .resolve("localhost".parse().unwrap())
                .await
                .is_err()
        );
        let resolver = PublicResolver { private_too: true };
        assert!(resolver.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
