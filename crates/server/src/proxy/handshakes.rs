//! Connections that are not authenticated yet, bounded in all and by address.
//!
//! Where there is no room for another, the oldest connection that has used up its grace is closed: a client
//! without a password cannot keep others out by being silent. Clients send their startup packet at once, so a
//! silent one has less grace than one that is proving its password.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::config::ProxyConfig;
use crate::peer::site;

/// How long a connection that has sent no startup packet is safe from being closed for another's sake.
const SILENT_GRACE: Duration = Duration::from_millis(100);

/// How long one that has is.
const EXCHANGE_GRACE: Duration = Duration::from_secs(5);

/// The connections that are not authenticated.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: u32,
    per_address_max: u32,
    open: Mutex<OpenHandshakes>,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    next_id: u64,
    /// By id, and so by age.
    by_id: BTreeMap<u64, OpenHandshake>,
}

#[derive(Debug)]
struct OpenHandshake {
    address: IpAddr,
    since: Instant,
    is_silent: bool,
    evicted: CancellationToken,
}

/// The limit that leaves no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandshakeLimit {
    pub(super) setting: &'static str,
    pub(super) max: u32,
}

/// One connection's place until it is authenticated; given back when dropped.
#[derive(Debug)]
pub(super) struct Handshake {
    handshakes: Arc<Handshakes>,
    id: u64,
    evicted: CancellationToken,
}

impl Handshakes {
    pub(super) fn new(config: &ProxyConfig) -> Arc<Self> {
        Arc::new(Self {
            max: config.handshakes_max,
            per_address_max: config.connections_per_address_max,
            open: Mutex::default(),
        })
    }

    /// Counts a connection, in place of an older one where necessary.
    ///
    /// # Errors
    /// The limit, when no other connection has used up its grace.
    pub(super) fn begin(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Handshake, HandshakeLimit> {
        let address = site(address);
        let mut open = self.lock();
        let of_address = open.by_id.values().filter(|other| other.address == address);
        if of_address.count() >= self.per_address_max as usize {
            if !open.evict(now, |other| other.address == address) {
                return Err(HandshakeLimit {
                    setting: "connections_per_address_max",
                    max: self.per_address_max,
                });
            }
        } else if open.by_id.len() >= self.max as usize && !open.evict(now, |_| true) {
            return Err(HandshakeLimit {
                setting: "handshakes_max",
                max: self.max,
            });
        }
        let id = open.next_id;
        open.next_id += 1;
        let evicted = CancellationToken::new();
        let handshake = OpenHandshake {
            address,
            since: now,
            is_silent: true,
            evicted: evicted.clone(),
        };
        open.by_id.insert(id, handshake);
        Ok(Handshake {
            handshakes: self.clone(),
            id,
            evicted,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenHandshakes> {
        // Entries are inserted and removed whole, so a panic elsewhere leaves the map sound.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenHandshakes {
    /// Closes the oldest of these connections that has used up its grace, a silent one first.
    fn evict(&mut self, now: Instant, is_candidate: impl Fn(&OpenHandshake) -> bool) -> bool {
        let oldest = |is_silent: bool, grace: Duration| {
            let mut candidates = self.by_id.iter().filter(|(_, other)| {
                other.is_silent == is_silent
                    && now.saturating_duration_since(other.since) >= grace
                    && is_candidate(other)
            });
            candidates.next().map(|(id, _)| *id)
        };
        let evicted = oldest(true, SILENT_GRACE).or_else(|| oldest(false, EXCHANGE_GRACE));
        let evicted = evicted.and_then(|id| self.by_id.remove(&id));
        if let Some(handshake) = &evicted {
            handshake.evicted.cancel();
        }
        evicted.is_some()
    }
}

impl Handshake {
    /// Notes that the client has sent its startup packet.
    pub(super) fn note_startup(&self) {
        if let Some(handshake) = self.handshakes.lock().by_id.get_mut(&self.id) {
            handshake.is_silent = false;
        }
    }

    /// Is cancelled when the connection must be closed to make room for another.
    pub(super) fn evicted(&self) -> CancellationToken {
        self.evicted.clone()
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
