//! The clients at the other ends of connections, before and after they have shown a token.
//!
//! A connection on which no request has shown a valid token is a *stranger*. Strangers are bounded by address;
//! beyond the bound, or where the server has no connection left, the oldest stranger is closed. So clients with a
//! token always find a connection, however many there are without one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::error::RequestError;

/// Most requests without a token in progress on one connection: a browser that reads `/docs` sends four.
const PUBLIC_REQUESTS_PER_CONNECTION_MAX: u32 = 16;

/// Where the counter of all requests without a token stands among those that a request counts in.
const OF_ALL: usize = 2;

/// The bits of an IPv6 address that tell one site from another: a site has all addresses below its prefix.
const IPV6_SITE_BITS: u32 = 64;

/// The peers of all open connections.
#[derive(Debug)]
pub(crate) struct Peers {
    strangers_per_address_max: usize,
    public_requests_max: u32,
    public_requests_per_address_max: u32,
    public_requests: AtomicU32,
    /// Requests without a token in progress that trusted proxies pass on, by the client's address.
    forwarded: Mutex<HashMap<IpAddr, u32>>,
    open: Mutex<OpenPeers>,
}

#[derive(Debug, Default)]
struct OpenPeers {
    next_id: u64,
    /// By id, and so by age.
    strangers: BTreeMap<u64, CancellationToken>,
    addresses: HashMap<IpAddr, Address>,
}

/// The connections from one address.
#[derive(Debug, Default)]
struct Address {
    connections: usize,
    strangers: BTreeSet<u64>,
    public_requests: Arc<AtomicU32>,
}

/// One connection's client.
#[derive(Debug)]
pub(crate) struct Peer {
    peers: Arc<Peers>,
    id: u64,
    address: IpAddr,
    is_identified: AtomicBool,
    evicted: CancellationToken,
    public_requests: AtomicU32,
    public_requests_of_address: Arc<AtomicU32>,
}

impl Peers {
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            strangers_per_address_max: config.connections_per_address_max as usize,
            public_requests_max: config.public_requests_max,
            public_requests_per_address_max: config.public_requests_per_address_max,
            public_requests: AtomicU32::new(0),
            forwarded: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// Registers a connection, as a stranger. The oldest stranger of the same address is evicted where there are
    /// too many.
    pub(crate) fn register(self: &Arc<Self>, address: IpAddr) -> Arc<Peer> {
        self.insert(address, self.strangers_per_address_max)
    }

    /// Registers a connection of a proxy, as a stranger; its address has no bound.
    pub(crate) fn register_proxy(self: &Arc<Self>, address: IpAddr) -> Arc<Peer> {
        self.insert(address, usize::MAX)
    }

    fn insert(self: &Arc<Self>, address: IpAddr, strangers_max: usize) -> Arc<Peer> {
        let address = site(address);
        let evicted = CancellationToken::new();
        let mut open = self.lock();
        let id = open.next_id;
        open.next_id += 1;
        let of_address = open.addresses.entry(address).or_default();
        of_address.connections += 1;
        let public_requests_of_address = of_address.public_requests.clone();
        let is_full = of_address.strangers.len() >= strangers_max;
        let oldest = if is_full {
            of_address.strangers.pop_first()
        } else {
            None
        };
        of_address.strangers.insert(id);
        open.strangers.insert(id, evicted.clone());
        if let Some(stranger) = oldest.and_then(|oldest| open.strangers.remove(&oldest)) {
            stranger.cancel();
        }
        drop(open);
        Arc::new(Peer {
            peers: self.clone(),
            id,
            address,
            is_identified: AtomicBool::new(false),
            evicted,
            public_requests: AtomicU32::new(0),
            public_requests_of_address,
        })
    }

    /// Evicts the oldest stranger; false when there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let oldest = self.lock().strangers.pop_first();
        if let Some((_, stranger)) = &oldest {
            stranger.cancel();
        }
        oldest.is_some()
    }

    fn forwarded(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, u32>> {
        // Single counts are changed, so a panic elsewhere leaves them sound.
        self.forwarded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OpenPeers> {
        // Each change leaves the maps consistent, so a panic elsewhere leaves them sound.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenPeers {
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

    /// Counts a request without a token until the permit is dropped. `forwarded` is the client's address where a
    /// trusted proxy passes the request on: a connection of such is of many clients.
    ///
    /// # Errors
    /// [`RequestError::Busy`] with the limit that is reached.
    pub(crate) fn enter_public(
        self: &Arc<Self>,
        forwarded: Option<IpAddr>,
    ) -> Result<PublicPermit, RequestError> {
        let peers = &self.peers;
        let Some(client) = forwarded.map(site) else {
            return self.count(&self.bounds()).map(|()| PublicPermit {
                peer: self.clone(),
                forwarded: None,
            });
        };
        let mut counts = peers.forwarded();
        let count = counts.get(&client).copied().unwrap_or(0);
        if count >= peers.public_requests_per_address_max {
            return Err(RequestError::Busy {
                limit: "server.public_requests_per_address_max",
                max: u64::from(peers.public_requests_per_address_max),
            });
        }
        self.count(&self.bounds()[OF_ALL..])?;
        counts.insert(client, count + 1);
        Ok(PublicPermit {
            peer: self.clone(),
            forwarded: Some(client),
        })
    }

    /// The counters of requests without a token, with their bounds; the last one is that of all of them.
    fn bounds(&self) -> [(&AtomicU32, &'static str, u32); OF_ALL + 1] {
        let peers = &self.peers;
        [
            (
                &self.public_requests,
                "requests without a token on one connection",
                PUBLIC_REQUESTS_PER_CONNECTION_MAX,
            ),
            (
                &*self.public_requests_of_address,
                "server.public_requests_per_address_max",
                peers.public_requests_per_address_max,
            ),
            (
                &peers.public_requests,
                "server.public_requests_max",
                peers.public_requests_max,
            ),
        ]
    }

    /// Counts a request in all of these or in none.
    fn count(&self, bounds: &[(&AtomicU32, &'static str, u32)]) -> Result<(), RequestError> {
        for (at, (counter, limit, max)) in bounds.iter().enumerate() {
            if counter.fetch_add(1, Ordering::Relaxed) < *max {
                continue;
            }
            for (counter, _, _) in &bounds[..=at] {
                counter.fetch_sub(1, Ordering::Relaxed);
            }
            return Err(RequestError::Busy {
                limit,
                max: u64::from(*max),
            });
        }
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
        let bounds = self.peer.bounds();
        let Some(client) = self.forwarded else {
            for (counter, _, _) in bounds {
                counter.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        };
        bounds[OF_ALL].0.fetch_sub(1, Ordering::Relaxed);
        let mut counts = self.peer.peers.forwarded();
        if let Some(count) = counts.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&client);
            }
        }
    }
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
