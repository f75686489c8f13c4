//! Connections that are not authenticated yet, bounded in all and by address.
//!
//! Where there is no room for another, one of them is closed: of the address that has the most, the
//! one whose client has been waited for longest. An address that has at least twice as many as the
//! newcomer's gives one up at once, so a few addresses cannot keep others out, however many
//! connections they open and however far they go without a password. Between addresses that have
//! about as many, a client has time for its next message; an address never loses one to another
//! that has more.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use tokio_util::sync::CancellationToken;

use super::config::ProxyConfig;
use crate::peer::site_address;

/// How long a client has for its startup packet before its connection may be closed for another's
/// sake. Clients send it at once.
const SILENT_GRACE: Duration = Duration::from_millis(100);

/// How long a client has for each message of its exchange, divided by the number of connections of
/// its address: a round trip and some work.
const EXCHANGE_GRACE: Duration = Duration::from_secs(1);

/// The lower bound of that time, however many connections an address has.
const EXCHANGE_GRACE_MIN: Duration = Duration::from_millis(100);

/// The connections that are not authenticated.
#[derive(Debug)]
pub(super) struct Handshakes {
    max: u32,
    per_address_max: u32,
    open_handshakes: Mutex<OpenHandshakes>,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    next_id: u64,
    by_id: BTreeMap<u64, OpenHandshake>,
    /// How many each address has.
    counts: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenHandshake {
    address: IpAddr,
    /// Since when the client's next message is waited for.
    waiting_since: Instant,
    is_silent: bool,
    eviction: CancellationToken,
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
    eviction: CancellationToken,
}

impl Handshakes {
    pub(super) fn new(config: &ProxyConfig) -> Arc<Self> {
        Arc::new(Self {
            max: config.handshakes_max,
            per_address_max: config.connections_per_address_max,
            open_handshakes: Mutex::default(),
        })
    }

    /// Counts a connection, in place of an older one where necessary.
    ///
    /// # Errors
    /// The limit, when no other connection gives way.
    pub(super) fn register(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Handshake, HandshakeLimit> {
        let address = site_address(address);
        let mut open = self.lock();
        let count = open.count(address);
        if count >= self.per_address_max as usize {
            let can_evict = |other: &OpenHandshake, others: usize| {
                other.address == address && other.is_overdue(others, now)
            };
            if !open.evict(can_evict) {
                return Err(HandshakeLimit {
                    setting: "connections_per_address_max",
                    max: self.per_address_max,
                });
            }
        } else if open.by_id.len() >= self.max as usize {
            let gives_way = |other: &OpenHandshake, others: usize| {
                let has_more = others > count || other.address == address;
                others >= 2 * (count + 1) || (has_more && other.is_overdue(others, now))
            };
            if !open.evict(gives_way) {
                return Err(HandshakeLimit { setting: "handshakes_max", max: self.max });
            }
        }
        let eviction = CancellationToken::new();
        let id = open.insert(OpenHandshake {
            address,
            waiting_since: now,
            is_silent: true,
            eviction: eviction.clone(),
        });
        Ok(Handshake { handshakes: self.clone(), id, eviction })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenHandshakes> {
        // Nothing in between can panic that changes more than one of the maps.
        lock(&self.open_handshakes)
    }
}

impl OpenHandshakes {
    fn count(&self, address: IpAddr) -> usize {
        self.counts.get(&address).copied().unwrap_or(0)
    }

    fn insert(&mut self, handshake: OpenHandshake) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        *self.counts.entry(handshake.address).or_default() += 1;
        self.by_id.insert(id, handshake);
        id
    }

    fn remove(&mut self, id: u64) -> Option<OpenHandshake> {
        let handshake = self.by_id.remove(&id)?;
        let count = self.count(handshake.address).saturating_sub(1);
        if count == 0 {
            self.counts.remove(&handshake.address);
        } else {
            self.counts.insert(handshake.address, count);
        }
        Some(handshake)
    }

    /// Closes one of the connections that give way, which is told of each with how many its address
    /// has: of the address with the most, the one whose client has been waited for longest.
    fn evict(&mut self, can_evict: impl Fn(&OpenHandshake, usize) -> bool) -> bool {
        let candidates = self.by_id.iter().filter_map(|(id, other)| {
            let count = self.count(other.address);
            can_evict(other, count).then_some((Reverse(count), other.waiting_since, *id))
        });
        let Some((_, _, id)) = candidates.min() else {
            return false;
        };
        if let Some(handshake) = self.remove(id) {
            handshake.eviction.cancel();
        }
        true
    }
}

impl OpenHandshake {
    /// Whether its client, whose address has `count` connections, has used up its time for the next
    /// message.
    fn is_overdue(&self, count: usize, now: Instant) -> bool {
        let grace = if self.is_silent {
            SILENT_GRACE
        } else {
            let shares = u32::try_from(count).unwrap_or(u32::MAX).max(1);
            (EXCHANGE_GRACE / shares).max(EXCHANGE_GRACE_MIN)
        };
        now.saturating_duration_since(self.waiting_since) >= grace
    }
}

impl Handshake {
    /// Restarts the time that the client, whose startup packet has arrived, has for its next
    /// message.
    pub(super) fn mark_waiting(&self, now: Instant) {
        if let Some(handshake) = self.handshakes.lock().by_id.get_mut(&self.id) {
            handshake.is_silent = false;
            handshake.waiting_since = now;
        }
    }

    /// Is cancelled when the connection must be closed to make room for another.
    pub(super) fn eviction(&self) -> CancellationToken {
        self.eviction.clone()
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.handshakes.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests;
