//! The addresses of clients behind reverse proxies that the settings name.
//!
//! A proxy appends the address of its own client to a header. So the header is read from the right:
//! the last entry was written by the connected proxy, and everything to the left of an address that
//! is not a trusted proxy's may be forged by the client. If the header cannot be parsed, the
//! address of the connection counts.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

/// Most addresses of a header that are looked at.
const ENTRIES_MAX: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of a request's client; an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientAddress {
    pub(crate) ip: IpAddr,
    /// Whether a trusted proxy names it, so that the connection is another's.
    pub(crate) is_forwarded: bool,
}

/// The proxies that are trusted to name the addresses of clients.
#[derive(Debug)]
pub(crate) struct TrustedProxies {
    networks: Vec<IpNet>,
    header: ForwardedHeader,
}

/// Where proxies name their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardedHeader {
    /// Addresses, separated by commas.
    XForwardedFor,
    /// The header `Forwarded` of RFC 7239.
    Forwarded,
}

impl TrustedProxies {
    /// Reads the settings `server.trusted_proxies` and `server.forwarded_header`.
    ///
    /// # Errors
    /// The setting that cannot be used, and why.
    pub(crate) fn read(networks: &str, header: &str) -> Result<Self, (&'static str, String)> {
        let header = match header {
            "x-forwarded-for" => ForwardedHeader::XForwardedFor,
            "forwarded" => ForwardedHeader::Forwarded,
            other => {
                let message = format!("`{other}` is neither `x-forwarded-for` nor `forwarded`");
                return Err(("server.forwarded_header", message));
            }
        };
        let entries = networks.split(',').map(str::trim);
        let networks = entries.filter(|entry| !entry.is_empty()).map(|entry| {
            let network = entry.parse::<IpNet>().ok().or_else(|| entry.parse::<IpAddr>().ok().map(IpNet::from));
            network.ok_or_else(|| {
                let message = format!(
                    "`{entry}` is neither an address nor a network: write for example 10.0.0.7 or 10.0.0.0/8"
                );
                ("server.trusted_proxies", message)
            })
        });
        Ok(Self { networks: networks.collect::<Result<_, _>>()?, header })
    }

    /// Whether an address is a trusted proxy's.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The address of the client of a request that came from `peer`.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddress {
        let forwarded_ip = if self.contains(peer) { self.forwarded_ip(headers) } else { None };
        ClientAddress {
            ip: forwarded_ip.unwrap_or(peer).to_canonical(),
            is_forwarded: forwarded_ip.is_some(),
        }
    }

    /// The right-most address that is no proxy's, or the left-most one where all are.
    fn forwarded_ip(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let (name, parse_entry): (_, fn(&str) -> Option<IpAddr>) = match self.header {
            ForwardedHeader::XForwardedFor => (X_FORWARDED_FOR, parse_node),
            ForwardedHeader::Forwarded => (header::FORWARDED, parse_forwarded_element),
        };
        let mut left_most = None;
        let lines: Vec<_> = headers.get_all(name).iter().collect();
        // No address holds a comma, so that quotes which a client has opened to the left mean
        // nothing here.
        let entries =
            lines.iter().rev().flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        for (position, entry) in entries.enumerate() {
            if position >= ENTRIES_MAX {
                return None;
            }
            let address = parse_entry(std::str::from_utf8(entry).ok()?.trim())?;
            if !self.contains(address) {
                return Some(address);
            }
            left_most = Some(address);
        }
        left_most
    }
}

/// Parses an address with an optional port; an IPv6 address with a port is in brackets.
fn parse_node(text: &str) -> Option<IpAddr> {
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.or_else(|| {
        let inside = text.strip_prefix('[')?.strip_suffix(']')?;
        inside.parse().ok().map(IpAddr::V6)
    })
}

/// The address of `for` in one element of `Forwarded` (RFC 7239 section 4).
fn parse_forwarded_element(text: &str) -> Option<IpAddr> {
    let mut values = text.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    });
    let value = values.next()?;
    // Two of them contradict each other.
    if values.next().is_some() {
        return None;
    }
    match value.strip_prefix('"') {
        Some(quoted) => parse_node(quoted.strip_suffix('"')?),
        None => parse_node(value),
    }
}

#[cfg(test)]
mod tests;
