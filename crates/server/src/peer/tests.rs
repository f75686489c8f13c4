//! Strangers are bounded, and clients with a token are not.

use super::*;

fn peers(strangers: u32) -> Arc<Peers> {
    Peers::new(&ServerConfig {
        connections_per_address_max: strangers,
        public_requests_max: 20,
        public_requests_per_address_max: 17,
        ..ServerConfig::default()
    })
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_oldest_stranger_of_an_address_makes_room_for_the_next() {
    let peers = peers(2);
    let here = address("192.0.2.1");
    let connected: Vec<_> = (0..3).map(|_| peers.register(here, PeerKind::Client)).collect();
    let elsewhere = peers.register(address("192.0.2.2"), PeerKind::Client);
    let evicted = |peer: &Arc<Peer>| peer.eviction.is_cancelled();
    assert_eq!(connected.iter().map(evicted).collect::<Vec<_>>(), [true, false, false]);
    assert!(!evicted(&elsewhere));
}

#[test]
fn a_client_with_a_token_is_never_evicted() {
    let peers = peers(1);
    let here = address("192.0.2.1");
    let known = peers.register(here, PeerKind::Client);
    known.mark_identified();
    let stranger = peers.register(here, PeerKind::Client);
    let elsewhere = address("192.0.2.2");
    let next = peers.register_by_eviction(elsewhere, PeerKind::Client).unwrap();
    assert!(stranger.eviction.is_cancelled());
    next.mark_identified();
    assert!(peers.register_by_eviction(elsewhere, PeerKind::Client).is_none());
    assert!(!known.eviction.is_cancelled());
    drop((known, stranger, next));
    assert!(peers.lock().addresses.is_empty());
}

#[test]
fn requests_without_a_token_are_bounded_by_connection_address_and_in_all() {
    let peers = peers(10);
    let first = peers.register(address("2001:db8::1"), PeerKind::Client);
    let same_site = peers.register(address("2001:db8::2"), PeerKind::Client);
    let other = peers.register(address("192.0.2.9"), PeerKind::Client);
    let limit = |refused: RequestError| match refused {
        RequestError::Busy { limit, max } => (limit, max),
        other => panic!("{other}"),
    };
    first.mark_identified();
    let held: Vec<_> = (0..16).map(|_| first.acquire_public_permit(None).unwrap()).collect();
    assert_eq!(limit(first.acquire_public_permit(None).unwrap_err()).1, 16);
    let one_more = same_site.acquire_public_permit(None).unwrap();
    assert_eq!(
        limit(same_site.acquire_public_permit(None).unwrap_err()),
        ("server.public_requests_per_address_max", 17)
    );
    let others: Vec<_> = (0..3).map(|_| other.acquire_public_permit(None).unwrap()).collect();
    assert_eq!(
        limit(other.acquire_public_permit(None).unwrap_err()),
        ("server.public_requests_max", 20)
    );
    drop((held, one_more, others));
    assert_eq!(peers.lock().public_requests, 0);
}

#[test]
fn the_connection_with_the_most_requests_makes_room_for_one_with_fewer() {
    let peers = peers(10);
    let here = address("192.0.2.1");
    let [full, other, page] = [(); 3].map(|()| peers.register(here, PeerKind::Client));
    let evicted = |peer: &Arc<Peer>| peer.eviction.is_cancelled();
    let held: Vec<_> = (0..16).map(|_| full.acquire_public_permit(None).unwrap()).collect();
    let first = other.acquire_public_permit(None).unwrap();
    let second = page.acquire_public_permit(None).unwrap();
    assert_eq!([&full, &other, &page].map(evicted), [true, false, false]);
    // The evicted one asks nothing any more, and what it had counts once.
    assert!(full.acquire_public_permit(None).is_err());
    drop(held);
    assert_eq!(peers.lock().public_requests, 2);
    drop((first, second));
    assert_eq!(peers.lock().public_requests, 0);
    // Beyond the bound of all requests, wherever they come from.
    let addresses = ["192.0.2.2", "192.0.2.3", "192.0.2.4"].map(address);
    let [many, some, elsewhere] =
        addresses.map(|address| peers.register(address, PeerKind::Client));
    let enter = |peer: &Arc<Peer>, count: u32| -> Vec<_> {
        (0..count).map(|_| peer.acquire_public_permit(None).unwrap()).collect()
    };
    let held = (enter(&many, 15), enter(&some, 5), enter(&elsewhere, 1));
    assert_eq!([&many, &some, &elsewhere].map(evicted), [true, false, false]);
    drop(held);
}

#[test]
fn clients_of_a_proxy_are_bounded_by_their_own_addresses() {
    let peers = peers(1);
    let proxy = address("192.0.2.1");
    let connected: Vec<_> = (0..3).map(|_| peers.register(proxy, PeerKind::Proxy)).collect();
    assert!(connected.iter().all(|peer| !peer.eviction.is_cancelled()));
    let enter = |client: &str| connected[0].acquire_public_permit(Some(address(client)));
    let limit = |refused: RequestError| match refused {
        RequestError::Busy { limit, .. } => limit,
        other => panic!("{other}"),
    };
    let held: Vec<_> = (0..17).map(|_| enter("203.0.113.7").unwrap()).collect();
    let of_address = "server.public_requests_per_address_max";
    assert_eq!(limit(enter("203.0.113.7").unwrap_err()), of_address);
    let others: Vec<_> = (0..3).map(|_| enter("203.0.113.8").unwrap()).collect();
    assert_eq!(limit(enter("203.0.113.9").unwrap_err()), "server.public_requests_max");
    drop((held, others));
    assert_eq!(peers.lock().public_requests, 0);
    assert!(peers.lock().forwarded_requests.is_empty());
    // The oldest of all still makes room.
    let elsewhere = address("192.0.2.2");
    peers.register_by_eviction(elsewhere, PeerKind::Client).unwrap();
    assert!(connected[0].eviction.is_cancelled());
}

#[test]
fn a_connection_that_sends_several_requests_closes_one_other_at_most() {
    let peers = peers(10);
    let here = address("192.0.2.1");
    let connected = [(); 4].map(|()| peers.register(here, PeerKind::Client));
    let mut held = Vec::new();
    for (peer, count) in connected.iter().zip([6, 6, 4, 1]) {
        held.extend((0..count).map(|_| peer.acquire_public_permit(None).unwrap()));
    }
    let page = peers.register(here, PeerKind::Client);
    let mut requests = Vec::new();
    while let Ok(permit) = page.acquire_public_permit(None) {
        requests.push(permit);
    }
    // No other connection has more than it has by now.
    assert_eq!(requests.len(), 6);
    let evicted = connected.each_ref().map(|peer| peer.eviction.is_cancelled());
    assert_eq!(evicted, [true, false, false, false]);
    drop((held, requests));
    assert_eq!(peers.lock().public_requests, 0);
}

#[test]
fn a_new_connection_closes_one_other_where_both_its_address_and_the_server_are_full() {
    let peers = peers(2);
    let (here, elsewhere) = (address("192.0.2.1"), address("192.0.2.2"));
    let oldest = peers.register(elsewhere, PeerKind::Client);
    let own = [(); 2].map(|()| peers.register(here, PeerKind::Client));
    let next = peers.register_by_eviction(here, PeerKind::Client).unwrap();
    let evicted = |peer: &Arc<Peer>| peer.eviction.is_cancelled();
    assert_eq!([&oldest, &own[0], &own[1], &next].map(evicted), [false, true, false, false]);
    let other = peers.register_by_eviction(elsewhere, PeerKind::Client);
    assert_eq!(
        [&oldest, &own[1], &next, &other.unwrap()].map(evicted),
        [true, false, false, false]
    );
}
