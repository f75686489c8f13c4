//! Allowed destinations of requests: the public internet, and what the settings add.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, PoisonError, RwLock};

use egret_base::sync::write_lock;
use reqwest::Url;

use crate::address::is_public;
use crate::client::OutgoingError;
use crate::resolve::{Lookup, SystemLookup};

/// The destinations of requests that users of Egret cause. Cheap to clone; clones change together.
#[derive(Clone)]
pub struct Destinations {
    allowed: Arc<RwLock<Arc<[DestinationRule]>>>,
    allows_all: bool,
    pub(crate) lookup: Arc<dyn Lookup>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DestinationRule {
    /// A host of a URL, with a port perhaps.
    Host { name: String, port: Option<u16> },
    /// Every host below a domain; with the dot before it.
    Domain { suffix: String },
    /// An address of a URL with a port.
    Socket { address: IpAddr, port: u16 },
    /// Addresses, in a URL or behind a name.
    Network { address: IpAddr, prefix: u32 },
}

/// Result of the check of a URL's host.
pub(crate) enum Permission {
    /// The settings allow the host by name: its addresses are not looked at.
    ByName,
    /// The host is not allowed by name: if it is a name, its addresses are checked.
    ByAddress,
}

impl fmt::Debug for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destinations")
            .field("allowed", &self.allowed())
            .field("is_everything", &self.allows_all)
            .finish_non_exhaustive()
    }
}

impl Default for Destinations {
    fn default() -> Self {
        Self {
            allowed: Arc::new(RwLock::new(Arc::new([]))),
            allows_all: false,
            lookup: Arc::new(SystemLookup),
        }
    }
}

impl Destinations {
    /// The public internet and what `text` allows: the setting `outgoing.allow`.
    ///
    /// # Errors
    /// Which entry cannot be read.
    pub fn new(text: &str) -> Result<Self, String> {
        let destinations = Self::default();
        destinations.set_allowed(text)?;
        Ok(destinations)
    }

    /// Replaces the list of allowed destinations; returns whether the list has changed. A
    /// connection that is open may serve a request to its name until it has been idle for a while.
    ///
    /// # Errors
    /// As [`Destinations::new`]; what was allowed before stays so.
    pub fn set_allowed(&self, text: &str) -> Result<bool, String> {
        let rules = parse_rules(text)?;
        let mut allowed = write_lock(&self.allowed);
        let has_changed = **allowed != *rules;
        *allowed = rules;
        Ok(has_changed)
    }

    fn allowed(&self) -> Arc<[DestinationRule]> {
        let allowed = self.allowed.read();
        allowed.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Allows every address, public or not.
    pub fn allow_all() -> Self {
        Self { allows_all: true, ..Self::default() }
    }

    /// The same destinations, with names resolved by `lookup`.
    pub fn with_lookup(self, lookup: Arc<dyn Lookup>) -> Self {
        Self { lookup, ..self }
    }

    /// Reads a URL and refuses what it cannot lead to: another scheme than http or https, or an
    /// address that is not allowed.
    ///
    /// # Errors
    /// [`OutgoingError::Url`], [`OutgoingError::Refused`].
    pub fn check(&self, url: &str) -> Result<Url, OutgoingError> {
        let parsed = parse_url(url)?;
        self.check_permission(&parsed)?;
        Ok(parsed)
    }

    pub(crate) fn check_permission(&self, url: &Url) -> Result<Permission, OutgoingError> {
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(address) = literal.parse::<IpAddr>() else {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            let is_named = self.allowed().iter().any(|entry| entry.allows_name(&name, port));
            return Ok(if self.allows_all || is_named {
                Permission::ByName
            } else {
                Permission::ByAddress
            });
        };
        let is_allowed = self.allowed().iter().any(|entry| entry.allows_socket(address, port));
        if self.allows_address(address) || is_allowed {
            return Ok(Permission::ByAddress);
        }
        Err(OutgoingError::Refused { destination: address.to_string() })
    }

    /// Whether requests may go to an address that a name stands for.
    pub(crate) fn allows_address(&self, address: IpAddr) -> bool {
        let is_allowed = |entry: &DestinationRule| entry.allows_address(address);
        self.allows_all || is_public(address) || self.allowed().iter().any(is_allowed)
    }
}

/// The entries of the setting `outgoing.allow`.
fn parse_rules(text: &str) -> Result<Arc<[DestinationRule]>, String> {
    let entries = text.split([',', ';']).map(str::trim);
    entries
        .filter(|entry| !entry.is_empty())
        .map(|entry| DestinationRule::parse(entry).ok_or_else(|| format!("outgoing.allow: `{entry}` is not a host, host:port, *.domain, address or network such as 10.0.0.0/8")))
        .collect()
}

pub(crate) fn parse_url(url: &str) -> Result<Url, OutgoingError> {
    let invalid = |reason: String| OutgoingError::Url { reason };
    let parsed = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(invalid("it must begin with http:// or https://".to_owned()));
    }
    Ok(parsed)
}

impl DestinationRule {
    fn parse(entry: &str) -> Option<Self> {
        if let Some((address, prefix)) = entry.split_once('/') {
            let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse().ok()?);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return (prefix <= bits).then_some(Self::Network { address, prefix });
        }
        if let Ok(socket) = entry.parse::<std::net::SocketAddr>() {
            return Some(Self::Socket { address: socket.ip(), port: socket.port() });
        }
        let bare = entry.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            return Some(Self::Network { address, prefix });
        }
        let (name, port) = match entry.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (entry, None),
        };
        let name = name.to_ascii_lowercase();
        let is_name = |name: &str| {
            let mut bytes = name.bytes();
            !name.is_empty()
                && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        match name.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') && port.is_none() && is_name(suffix) => {
                Some(Self::Domain { suffix: suffix.to_owned() })
            }
            None if is_name(&name) => Some(Self::Host { name, port }),
            _ => None,
        }
    }

    fn allows_name(&self, host: &str, url_port: u16) -> bool {
        match self {
            Self::Host { name, port } => name == host && port.is_none_or(|port| port == url_port),
            Self::Domain { suffix } => host.ends_with(suffix.as_str()),
            Self::Socket { .. } | Self::Network { .. } => false,
        }
    }

    fn allows_socket(&self, candidate: IpAddr, url_port: u16) -> bool {
        matches!(self, Self::Socket { address, port } if *address == candidate && *port == url_port)
    }

    fn allows_address(&self, candidate: IpAddr) -> bool {
        match self {
            // Version 4 in version 6 reaches what version 4 does.
            Self::Network { address, prefix } => {
                is_within(candidate.to_canonical(), *address, *prefix)
            }
            _ => false,
        }
    }
}

fn is_within(address: IpAddr, network: IpAddr, prefix: u32) -> bool {
    let bits = |address: Ipv6Addr| u128::from(address);
    let (address, network, bits_before) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_ipv6_mapped(), other.to_ipv6_mapped(), 96),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one, other, 0),
        _ => return false,
    };
    let ignored = 128 - bits_before - prefix;
    // A shift by all 128 bits leaves nothing to compare.
    let masked = |address| bits(address).checked_shr(ignored).unwrap_or(0);
    masked(address) == masked(network)
}

#[cfg(test)]
mod tests;
