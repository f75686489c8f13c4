//! Connections whose clients are waited for make room for others.

use super::*;

fn handshakes(max: u32, per_address_max: u32) -> Arc<Handshakes> {
    Handshakes::new(&ProxyConfig {
        handshakes_max: max,
        connections_per_address_max: per_address_max,
        ..ProxyConfig::default()
    })
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

#[test]
fn the_oldest_silent_connection_of_an_address_makes_room() {
    let handshakes = handshakes(10, 2);
    let start = Instant::now();
    let proving = handshakes.register(address(1), start).unwrap();
    proving.mark_waiting(start);
    let silent = handshakes.register(address(1), start).unwrap();
    let refused = handshakes.register(address(1), start).unwrap_err();
    assert_eq!(refused.setting, "connections_per_address_max");
    let elsewhere = handshakes.register(address(2), start).unwrap();
    let later = start + SILENT_GRACE;
    let next = handshakes.register(address(1), later).unwrap();
    assert!(silent.eviction.is_cancelled());
    for other in [&proving, &elsewhere, &next] {
        assert!(!other.eviction.is_cancelled());
    }
}

#[test]
fn a_client_that_does_not_go_on_makes_room_in_the_end() {
    let handshakes = handshakes(1, 10);
    let start = Instant::now();
    let proving = handshakes.register(address(1), start).unwrap();
    proving.mark_waiting(start);
    let refused = handshakes.register(address(2), start + SILENT_GRACE).unwrap_err();
    assert_eq!((refused.setting, refused.max), ("handshakes_max", 1));
    // Each of its messages gives it as much time again.
    let turn = start + EXCHANGE_GRACE - Duration::from_millis(1);
    proving.mark_waiting(turn);
    let refused = handshakes.register(address(2), start + EXCHANGE_GRACE);
    assert!(refused.is_err());
    let next = handshakes.register(address(2), turn + EXCHANGE_GRACE).unwrap();
    assert!(proving.eviction.is_cancelled());
    // An evicted connection gives back its place once.
    drop(proving);
    assert_eq!(handshakes.lock().by_id.len(), 1);
    drop(next);
    assert!(handshakes.lock().by_id.is_empty());
    assert!(handshakes.lock().counts.is_empty());
}

#[test]
fn an_address_full_of_clients_that_do_not_go_on_has_room_soon() {
    let handshakes = handshakes(1_024, 256);
    let start = Instant::now();
    let proving: Vec<Handshake> =
        (0..256).map(|_| handshakes.register(address(1), start).unwrap()).collect();
    for handshake in &proving {
        handshake.mark_waiting(start);
    }
    assert!(handshakes.register(address(1), start).is_err());
    let next = handshakes.register(address(1), start + EXCHANGE_GRACE_MIN);
    assert!(next.is_ok() && proving[0].eviction.is_cancelled());
}

/// However many a few addresses open, and whenever: each newcomer takes the place of another of
/// theirs.
#[test]
fn few_addresses_keep_no_other_one_out() {
    let handshakes = handshakes(1_024, 256);
    let now = Instant::now();
    let open = |last: u8| {
        let opened = handshakes.register(address(last), now);
        opened.inspect(|handshake| handshake.mark_waiting(now))
    };
    let mut theirs: Vec<Handshake> =
        (0..1_024).map(|number| open(u8::try_from(number % 4).unwrap()).unwrap()).collect();
    let honest: Vec<Handshake> = (100..110).map(|last| open(last).unwrap()).collect();
    for number in 0..1_000 {
        theirs.extend(open(u8::try_from(number % 8).unwrap()));
    }
    for handshake in &honest {
        assert!(!handshake.eviction.is_cancelled());
    }
    assert_eq!(handshakes.lock().by_id.len(), 1_024);
}

#[test]
fn an_address_loses_none_to_one_that_has_more() {
    let handshakes = handshakes(3, 10);
    let start = Instant::now();
    let lone = handshakes.register(address(1), start).unwrap();
    let pair = [0, 1].map(|_| handshakes.register(address(2), start).unwrap());
    let later = start + EXCHANGE_GRACE;
    let third = handshakes.register(address(2), later).unwrap();
    assert!(pair[0].eviction.is_cancelled());
    for other in [&lone, &pair[1], &third] {
        assert!(!other.eviction.is_cancelled());
    }
}
