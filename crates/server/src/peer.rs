//! The clients at the other ends of connections, before and after they have shown a token.
//!
//! A connection on which no request has shown a valid token is a *stranger*. Strangers are bounded by address;
//! beyond the bound, or where the server has no connection left, the oldest stranger is closed. So clients with a
//! token always find a connection, however many there are without one.
//!
//! Requests without a token are bounded by connection, by address and in all. Where an address or the whole has
//! reached its bound, the stranger with the most of them in progress is closed in favour of a connection with fewer:
//! a few connections that do not read what they asked for keep the public pages from nobody.

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

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
enum PeerKind {
    Client,
    /// A trusted proxy, which passes on requests of many clients.
    Proxy,
}

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
    strangers: BTreeMap<u64, Stranger>,
    addresses: HashMap<IpAddr, Address>,
}

/// A connection on which no request has shown a valid token.
#[derive(Debug)]
struct Stranger {
    evicted: CancellationToken,
    address: IpAddr,
    /// Its requests without a token in progress; `None` for a trusted proxy, whose connection serves many clients.
    public_requests: Option<Arc<AtomicU32>>,
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
    public_requests: Arc<AtomicU32>,
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
        self.insert(address, self.strangers_per_address_max, PeerKind::Client)
    }

    /// Registers a connection of a proxy, as a stranger; its address has no bound.
    pub(crate) fn register_proxy(self: &Arc<Self>, address: IpAddr) -> Arc<Peer> {
        self.insert(address, usize::MAX, PeerKind::Proxy)
    }

    fn insert(
        self: &Arc<Self>,
        address: IpAddr,
        strangers_max: usize,
        kind: PeerKind,
    ) -> Arc<Peer> {
        let address = site(address);
        let evicted = CancellationToken::new();
        let public_requests = Arc::<AtomicU32>::default();
        let stranger = Stranger {
            evicted: evicted.clone(),
            address,
            public_requests: match kind {
                PeerKind::Client => Some(public_requests.clone()),
                PeerKind::Proxy => None,
            },
        };
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
        open.strangers.insert(id, stranger);
        if let Some(stranger) = oldest.and_then(|oldest| open.strangers.remove(&oldest)) {
            stranger.evicted.cancel();
        }
        drop(open);
        Arc::new(Peer {
            peers: self.clone(),
            id,
            address,
            is_identified: AtomicBool::new(false),
            evicted,
            public_requests,
            public_requests_of_address,
        })
    }

    /// Evicts the oldest stranger; false when there is none.
    pub(crate) fn evict_oldest(&self) -> bool {
        let oldest = self.lock().strangers.pop_first();
        if let Some((_, stranger)) = &oldest {
            stranger.evicted.cancel();
        }
        oldest.is_some()
    }

    /// Evicts the stranger with the most requests without a token in progress, other than `requester` and with more
    /// than `held`: of one address, or of all. Of several the oldest goes; false when there is none.
    fn evict_busiest(&self, requester: &Peer, address: Option<IpAddr>, held: u32) -> bool {
        let mut open = self.lock();
        let busiest = open
            .strangers
            .iter()
            .filter(|(id, _)| **id != requester.id)
            .filter(|(_, stranger)| address.is_none_or(|address| stranger.address == address))
            .filter_map(|(id, stranger)| {
                let count = stranger.public_requests.as_ref()?.load(Ordering::Relaxed);
                (count > held).then_some((count, std::cmp::Reverse(*id)))
            })
            .max();
        let Some((_, std::cmp::Reverse(id))) = busiest else {
            return false;
        };
        if let Some(stranger) = open.strangers.remove(&id) {
            stranger.evicted.cancel();
            open.remove_stranger(id, stranger.address);
        }
        true
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
            let held = self.public_requests.load(Ordering::Relaxed);
            self.count(&self.bounds(), held)?;
            return Ok(PublicPermit {
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
        self.count(&self.bounds()[OF_ALL..], count)?;
        counts.insert(client, count + 1);
        Ok(PublicPermit {
            peer: self.clone(),
            forwarded: Some(client),
        })
    }

    /// The bounds of requests without a token; the last one is that of all of them.
    fn bounds(&self) -> [Bound<'_>; OF_ALL + 1] {
        let peers = &self.peers;
        [
            Bound {
                counter: &self.public_requests,
                limit: "requests without a token on one connection",
                max: PUBLIC_REQUESTS_PER_CONNECTION_MAX,
                range: Range::Connection,
            },
            Bound {
                counter: &self.public_requests_of_address,
                limit: "server.public_requests_per_address_max",
                max: peers.public_requests_per_address_max,
                range: Range::Address,
            },
            Bound {
                counter: &peers.public_requests,
                limit: "server.public_requests_max",
                max: peers.public_requests_max,
                range: Range::All,
            },
        ]
    }

    /// Counts a request of a client that has `held` in progress, within all bounds or within none.
    fn count(&self, bounds: &[Bound<'_>], held: u32) -> Result<(), RequestError> {
        for (at, bound) in bounds.iter().enumerate() {
            let is_within = bound.counter.fetch_add(1, Ordering::Relaxed) < bound.max;
            if is_within || self.make_room(bound.range, held) {
                continue;
            }
            for bound in &bounds[..=at] {
                bound.counter.fetch_sub(1, Ordering::Relaxed);
            }
            return Err(RequestError::Busy {
                limit: bound.limit,
                max: u64::from(bound.max),
            });
        }
        Ok(())
    }

    /// Evicts a connection with more requests without a token than `held`. Its requests end a moment later: until
    /// then their bound is exceeded by the one that takes their place.
    fn make_room(&self, range: Range, held: u32) -> bool {
        match range {
            Range::Connection => false,
            Range::Address => self.peers.evict_busiest(self, Some(self.address), held),
            Range::All => self.peers.evict_busiest(self, None, held),
        }
    }
}

/// A bound of requests without a token.
struct Bound<'a> {
    counter: &'a AtomicU32,
    limit: &'static str,
    max: u32,
    range: Range,
}

/// The connections whose requests a bound counts.
#[derive(Clone, Copy)]
enum Range {
    Connection,
    Address,
    All,
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
            for bound in bounds {
                bound.counter.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        };
        bounds[OF_ALL].counter.fetch_sub(1, Ordering::Relaxed);
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
