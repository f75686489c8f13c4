//! The clients at the other ends of connections, before and after they have shown a token.
//!
//! A connection on which no request has shown a valid token is a *stranger*. Strangers are bounded
//! by address; beyond the bound, or where the server has no connection left, the oldest stranger is
//! closed. So clients with a token always find a connection, however many there are without one.
//!
//! Requests without a token are bounded by connection, by address and in all. If an address or the
//! whole server has reached its bound, the stranger with the most of them in progress is closed in
//! favour of a connection with fewer: a few connections that do not read their responses cannot
//! block the public pages for others. Closing it frees the slots of all its requests at once, so
//! that a connection with several requests closes one other at most.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::error::RequestError;

/// Most requests without a token in progress on one connection: a browser that reads `/docs` sends
/// four.
const PUBLIC_REQUESTS_PER_CONNECTION_MAX: u32 = 16;

/// The bits of an IPv6 address that tell one site from another: a site has all addresses below its
/// prefix.
const IPV6_SITE_BITS: u32 = 64;

/// Whether a connection belongs to a client or to a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    Client,
    /// A trusted proxy's, which passes on requests of many clients: its address has no bound.
    Proxy,
}

/// The peers of all open connections.
#[derive(Debug)]
pub(crate) struct Peers {
    strangers_per_address_max: usize,
    public_requests_max: u32,
    public_requests_per_address_max: u32,
    open_peers: Mutex<OpenPeers>,
}

#[derive(Debug, Default)]
struct OpenPeers {
    next_id: u64,
    /// By id, and so by age.
    strangers: BTreeMap<u64, Stranger>,
    addresses: HashMap<IpAddr, Address>,
    /// Requests without a token in progress.
    public_requests: u32,
    /// Requests without a token in progress, by connection. Those of an evicted connection end in a
    /// moment, and are no longer counted.
    public_requests_by_id: HashMap<u64, u32>,
    /// Requests without a token that trusted proxies forward, by the client's address.
    forwarded_requests: HashMap<IpAddr, u32>,
}

/// A connection on which no request has shown a valid token.
#[derive(Debug)]
struct Stranger {
    eviction: CancellationToken,
    address: IpAddr,
    kind: PeerKind,
}

/// The connections from one address.
#[derive(Debug, Default)]
struct Address {
    connections: usize,
    strangers: BTreeSet<u64>,
    public_requests: u32,
}

#[derive(Debug)]
pub(crate) struct Peer {
    peers: Arc<Peers>,
    id: u64,
    address: IpAddr,
    is_identified: AtomicBool,
    eviction: CancellationToken,
}

impl Peers {
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            strangers_per_address_max: config.connections_per_address_max as usize,
            public_requests_max: config.public_requests_max,
            public_requests_per_address_max: config.public_requests_per_address_max,
            open_peers: Mutex::default(),
        })
    }

    /// Registers a connection, as a stranger. The oldest stranger of the same address is evicted
    /// where there are too many.
    pub(crate) fn register(self: &Arc<Self>, address: IpAddr, kind: PeerKind) -> Arc<Peer> {
        let mut open = self.lock();
        let address = site_address(address);
        if let Some(oldest) = self.oldest_excess_stranger(&open, address, kind) {
            open.evict(oldest);
        }
        self.insert(&mut open, address, kind)
    }

    /// Registers a connection where the server has no room for another one: a stranger is evicted
    /// for it, the oldest of the same address where there are too many, else the oldest of all.
    /// `None` when there is no stranger.
    pub(crate) fn register_by_eviction(
        self: &Arc<Self>,
        address: IpAddr,
        kind: PeerKind,
    ) -> Option<Arc<Peer>> {
        let mut open = self.lock();
        let address = site_address(address);
        let oldest = self
            .oldest_excess_stranger(&open, address, kind)
            .or_else(|| open.strangers.keys().next().copied())?;
        open.evict(oldest);
        Some(self.insert(&mut open, address, kind))
    }

    /// The oldest stranger of an address that has as many as it may.
    fn oldest_excess_stranger(
        &self,
        open: &OpenPeers,
        address: IpAddr,
        kind: PeerKind,
    ) -> Option<u64> {
        let strangers = &open.addresses.get(&address)?.strangers;
        let is_full = kind == PeerKind::Client && strangers.len() >= self.strangers_per_address_max;
        strangers.first().copied().filter(|_| is_full)
    }

    fn insert(
        self: &Arc<Self>,
        open: &mut OpenPeers,
        address: IpAddr,
        kind: PeerKind,
    ) -> Arc<Peer> {
        let eviction = CancellationToken::new();
        let stranger = Stranger { eviction: eviction.clone(), address, kind };
        let id = open.next_id;
        open.next_id += 1;
        let address_entry = open.addresses.entry(address).or_default();
        address_entry.connections += 1;
        address_entry.strangers.insert(id);
        open.strangers.insert(id, stranger);
        Arc::new(Peer {
            peers: self.clone(),
            id,
            address,
            is_identified: AtomicBool::new(false),
            eviction,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenPeers> {
        // Each change leaves the maps consistent, so a panic elsewhere leaves them sound.
        lock(&self.open_peers)
    }

    /// The limit of requests without a token from one address.
    fn address_limit_error(&self) -> RequestError {
        busy_error("server.public_requests_per_address_max", self.public_requests_per_address_max)
    }

    /// Ensures that one more request without a token fits the total limit, by eviction if
    /// necessary.
    fn ensure_total_capacity(
        &self,
        open: &mut OpenPeers,
        requester: u64,
        requests_held: u32,
    ) -> Result<(), RequestError> {
        let is_full = open.public_requests >= self.public_requests_max;
        if is_full && !open.evict_busiest(requester, None, requests_held) {
            return Err(busy_error("server.public_requests_max", self.public_requests_max));
        }
        Ok(())
    }
}

fn busy_error(limit: &'static str, max: u32) -> RequestError {
    RequestError::Busy { limit, max: u64::from(max) }
}

impl OpenPeers {
    /// Evicts a stranger. What its requests without a token took is free at once.
    fn evict(&mut self, id: u64) {
        let Some(stranger) = self.strangers.get(&id) else {
            return;
        };
        stranger.eviction.cancel();
        let address = stranger.address;
        self.remove_stranger(id, address);
        if let Some(requests) = self.public_requests_by_id.remove(&id) {
            self.release_requests(address, requests);
        }
    }

    /// Evicts the stranger with the most requests without a token in progress, other than
    /// `requester` and with more than `held`: of one address, or of all. Of several the oldest
    /// goes; false when there is none.
    fn evict_busiest(
        &mut self,
        requester: u64,
        address: Option<IpAddr>,
        requests_held: u32,
    ) -> bool {
        let candidates = self.strangers.iter().filter(|(id, stranger)| {
            **id != requester
                && stranger.kind == PeerKind::Client
                && address.is_none_or(|address| stranger.address == address)
        });
        let busiest = candidates
            .filter_map(|(id, _)| {
                let count = *self.public_requests_by_id.get(id)?;
                (count > requests_held).then_some((count, std::cmp::Reverse(*id)))
            })
            .max();
        if let Some((_, std::cmp::Reverse(id))) = busiest {
            self.evict(id);
        }
        busiest.is_some()
    }

    /// Counts fewer requests without a token of an address.
    fn release_requests(&mut self, address: IpAddr, requests: u32) {
        self.public_requests -= requests;
        if let Some(address_entry) = self.addresses.get_mut(&address) {
            address_entry.public_requests -= requests;
        }
    }

    fn remove_stranger(&mut self, id: u64, address: IpAddr) {
        self.strangers.remove(&id);
        if let Some(address_entry) = self.addresses.get_mut(&address) {
            address_entry.strangers.remove(&id);
        }
    }
}

impl Peer {
    /// Completes when the connection must be closed to make room for others.
    pub(crate) async fn await_eviction(&self) {
        self.eviction.cancelled().await;
    }

    /// Notes that a request on this connection has shown a valid token.
    pub(crate) fn mark_identified(&self) {
        if self.is_identified.load(Ordering::Relaxed) {
            return;
        }
        if !self.is_identified.swap(true, Ordering::Relaxed) {
            self.peers.lock().remove_stranger(self.id, self.address);
        }
    }

    /// Counts a request without a token until the permit is dropped. `forwarded` is the client's
    /// address where a trusted proxy passes the request on: a connection of such is of many
    /// clients.
    ///
    /// # Errors
    /// [`RequestError::Busy`] with the limit that is reached.
    pub(crate) fn acquire_public_permit(
        self: &Arc<Self>,
        forwarded: Option<IpAddr>,
    ) -> Result<PublicPermit, RequestError> {
        let forwarded = forwarded.map(site_address);
        match forwarded {
            Some(client) => self.count_forwarded_request(client)?,
            None => self.count_direct_request()?,
        }
        Ok(PublicPermit { peer: self.clone(), forwarded })
    }

    fn count_direct_request(&self) -> Result<(), RequestError> {
        let peers = &self.peers;
        let mut open = peers.lock();
        let requests_held = open.public_requests_by_id.get(&self.id).copied().unwrap_or(0);
        if requests_held >= PUBLIC_REQUESTS_PER_CONNECTION_MAX {
            let limit = "requests without a token on one connection";
            return Err(busy_error(limit, PUBLIC_REQUESTS_PER_CONNECTION_MAX));
        }
        let address_entry = open.addresses.get(&self.address);
        let requests_of_address = address_entry.map_or(0, |of_address| of_address.public_requests);
        let is_full = requests_of_address >= peers.public_requests_per_address_max;
        // An evicted connection gets no further permits.
        if self.eviction.is_cancelled()
            || is_full && !open.evict_busiest(self.id, Some(self.address), requests_held)
        {
            return Err(peers.address_limit_error());
        }
        peers.ensure_total_capacity(&mut open, self.id, requests_held)?;
        open.public_requests += 1;
        open.public_requests_by_id.insert(self.id, requests_held + 1);
        if let Some(of_address) = open.addresses.get_mut(&self.address) {
            of_address.public_requests += 1;
        }
        Ok(())
    }

    fn count_forwarded_request(&self, client: IpAddr) -> Result<(), RequestError> {
        let peers = &self.peers;
        let mut open = peers.lock();
        let requests_held = open.forwarded_requests.get(&client).copied().unwrap_or(0);
        if requests_held >= peers.public_requests_per_address_max {
            return Err(peers.address_limit_error());
        }
        peers.ensure_total_capacity(&mut open, self.id, requests_held)?;
        open.public_requests += 1;
        open.forwarded_requests.insert(client, requests_held + 1);
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut open = self.peers.lock();
        open.remove_stranger(self.id, self.address);
        if let Some(address_entry) = open.addresses.get_mut(&self.address) {
            address_entry.connections -= 1;
            if address_entry.connections == 0 {
                open.addresses.remove(&self.address);
            }
        }
    }
}

/// One request without a token, given back when dropped.
#[derive(Debug)]
pub(crate) struct PublicPermit {
    peer: Arc<Peer>,
    /// The client's address where a trusted proxy passes the request on.
    forwarded: Option<IpAddr>,
}

impl Drop for PublicPermit {
    fn drop(&mut self) {
        let Peer { id, address, .. } = *self.peer;
        let mut open = self.peer.peers.lock();
        if let Some(client) = self.forwarded {
            open.public_requests -= 1;
            decrement(&mut open.forwarded_requests, client);
        } else if decrement(&mut open.public_requests_by_id, id) {
            open.release_requests(address, 1);
        }
    }
}

/// Counts one less; false where nothing is counted.
fn decrement<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
    true
}

/// The address by which a client is counted.
pub(crate) fn site_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & (u128::MAX << (128 - IPV6_SITE_BITS));
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests;
