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
    open: Mutex<OpenPeers>,
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
    forwarded: HashMap<IpAddr, u32>,
}

/// A connection on which no request has shown a valid token.
#[derive(Debug)]
struct Stranger {
    evicted: CancellationToken,
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
    evicted: CancellationToken,
}

impl Peers {
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            strangers_per_address_max: config.connections_per_address_max as usize,
            public_requests_max: config.public_requests_max,
            public_requests_per_address_max: config.public_requests_per_address_max,
            open: Mutex::default(),
        })
    }

    /// Registers a connection, as a stranger. The oldest stranger of the same address is evicted
    /// where there are too many.
    pub(crate) fn register(self: &Arc<Self>, address: IpAddr, kind: PeerKind) -> Arc<Peer> {
        let mut open = self.lock();
        let address = site(address);
        if let Some(oldest) = self.oldest_too_many(&open, address, kind) {
            open.evict(oldest);
        }
        self.insert(&mut open, address, kind)
    }

    /// Registers a connection where the server has no room for another one: a stranger is evicted
    /// for it, the oldest of the same address where there are too many, else the oldest of all.
    /// `None` when there is no stranger.
    pub(crate) fn register_in_place(
        self: &Arc<Self>,
        address: IpAddr,
        kind: PeerKind,
    ) -> Option<Arc<Peer>> {
        let mut open = self.lock();
        let address = site(address);
        let oldest = self
            .oldest_too_many(&open, address, kind)
            .or_else(|| open.strangers.keys().next().copied())?;
        open.evict(oldest);
        Some(self.insert(&mut open, address, kind))
    }

    /// The oldest stranger of an address that has as many as it may.
    fn oldest_too_many(&self, open: &OpenPeers, address: IpAddr, kind: PeerKind) -> Option<u64> {
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
        let evicted = CancellationToken::new();
        let stranger = Stranger {
            evicted: evicted.clone(),
            address,
            kind,
        };
        let id = open.next_id;
        open.next_id += 1;
        let of_address = open.addresses.entry(address).or_default();
        of_address.connections += 1;
        of_address.strangers.insert(id);
        open.strangers.insert(id, stranger);
        Arc::new(Peer {
            peers: self.clone(),
            id,
            address,
            is_identified: AtomicBool::new(false),
            evicted,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenPeers> {
        // Each change leaves the maps consistent, so a panic elsewhere leaves them sound.
        lock(&self.open)
    }

    /// The limit of requests without a token from one address.
    fn address_limit(&self) -> RequestError {
        busy(
            "server.public_requests_per_address_max",
            self.public_requests_per_address_max,
        )
    }

    /// Ensures that one more request without a token fits the total limit, by eviction if
    /// necessary.
    fn check_all(
        &self,
        open: &mut OpenPeers,
        requester: u64,
        held: u32,
    ) -> Result<(), RequestError> {
        let is_full = open.public_requests >= self.public_requests_max;
        if is_full && !open.evict_busiest(requester, None, held) {
            return Err(busy("server.public_requests_max", self.public_requests_max));
        }
        Ok(())
    }
}

fn busy(limit: &'static str, max: u32) -> RequestError {
    RequestError::Busy {
        limit,
        max: u64::from(max),
    }
}

impl OpenPeers {
    /// Evicts a stranger. What its requests without a token took is free at once.
    fn evict(&mut self, id: u64) {
        let Some(stranger) = self.strangers.get(&id) else {
            return;
        };
        stranger.evicted.cancel();
        let address = stranger.address;
        self.remove_stranger(id, address);
        if let Some(requests) = self.public_requests_by_id.remove(&id) {
            self.release(address, requests);
        }
    }

    /// Evicts the stranger with the most requests without a token in progress, other than
    /// `requester` and with more than `held`: of one address, or of all. Of several the oldest
    /// goes; false when there is none.
    fn evict_busiest(&mut self, requester: u64, address: Option<IpAddr>, held: u32) -> bool {
        let candidates = self.strangers.iter().filter(|(id, stranger)| {
            **id != requester
                && stranger.kind == PeerKind::Client
                && address.is_none_or(|address| stranger.address == address)
        });
        let busiest = candidates
            .filter_map(|(id, _)| {
                let count = *self.public_requests_by_id.get(id)?;
                (count > held).then_some((count, std::cmp::Reverse(*id)))
            })
            .max();
        if let Some((_, std::cmp::Reverse(id))) = busiest {
            self.evict(id);
        }
        busiest.is_some()
    }

    /// Counts fewer requests without a token of an address.
    fn release(&mut self, address: IpAddr, requests: u32) {
        self.public_requests -= requests;
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.public_requests -= requests;
        }
    }

    fn remove_stranger(&mut self, id: u64, address: IpAddr) {
        self.strangers.remove(&id);
        if let Some(of_address) = self.addresses.get_mut(&address) {
            of_address.strangers.remove(&id);
        }
    }
}

impl Peer {
    /// Completes when the connection must be closed to make room for others.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Notes that a request on this connection has shown a valid token.
    pub(crate) fn identify(&self) {
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
    pub(crate) fn enter_public(
        self: &Arc<Self>,
        forwarded: Option<IpAddr>,
    ) -> Result<PublicPermit, RequestError> {
        let forwarded = forwarded.map(site);
        match forwarded {
            Some(client) => self.count_forwarded(client)?,
            None => self.count_own()?,
        }
        Ok(PublicPermit {
            peer: self.clone(),
            forwarded,
        })
    }

    fn count_own(&self) -> Result<(), RequestError> {
        let peers = &self.peers;
        let mut open = peers.lock();
        let held = open
            .public_requests_by_id
            .get(&self.id)
            .copied()
            .unwrap_or(0);
        if held >= PUBLIC_REQUESTS_PER_CONNECTION_MAX {
            let limit = "requests without a token on one connection";
            return Err(busy(limit, PUBLIC_REQUESTS_PER_CONNECTION_MAX));
        }
        let of_address = open.addresses.get(&self.address);
        let of_address = of_address.map_or(0, |of_address| of_address.public_requests);
        let is_full = of_address >= peers.public_requests_per_address_max;
        // An evicted connection gets no further permits.
        if self.evicted.is_cancelled()
            || is_full && !open.evict_busiest(self.id, Some(self.address), held)
        {
            return Err(peers.address_limit());
        }
        peers.check_all(&mut open, self.id, held)?;
        open.public_requests += 1;
        open.public_requests_by_id.insert(self.id, held + 1);
        if let Some(of_address) = open.addresses.get_mut(&self.address) {
            of_address.public_requests += 1;
        }
        Ok(())
    }

    fn count_forwarded(&self, client: IpAddr) -> Result<(), RequestError> {
        let peers = &self.peers;
        let mut open = peers.lock();
        let held = open.forwarded.get(&client).copied().unwrap_or(0);
        if held >= peers.public_requests_per_address_max {
            return Err(peers.address_limit());
        }
        peers.check_all(&mut open, self.id, held)?;
        open.public_requests += 1;
        open.forwarded.insert(client, held + 1);
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut open = self.peers.lock();
        open.remove_stranger(self.id, self.address);
        if let Some(of_address) = open.addresses.get_mut(&self.address) {
            of_address.connections -= 1;
            if of_address.connections == 0 {
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
            subtract_one(&mut open.forwarded, client);
        } else if subtract_one(&mut open.public_requests_by_id, id) {
            open.release(address, 1);
        }
    }
}

/// Counts one less; false where nothing is counted.
fn subtract_one<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u32>, key: K) -> bool {
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
pub(crate) fn site(address: IpAddr) -> IpAddr {
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
