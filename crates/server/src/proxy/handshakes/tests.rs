//! Silent connections make room for others.

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
    let proving = handshakes.begin(address(1), start).unwrap();
    proving.note_startup();
    let silent = handshakes.begin(address(1), start).unwrap();
    let refused = handshakes.begin(address(1), start).unwrap_err();
    assert_eq!(refused.setting, "connections_per_address_max");
    let elsewhere = handshakes.begin(address(2), start).unwrap();
    let later = start + SILENT_GRACE;
    let next = handshakes.begin(address(1), later).unwrap();
    assert!(silent.evicted.is_cancelled());
    for other in [&proving, &elsewhere, &next] {
        assert!(!other.evicted.is_cancelled());
    }
}

#[test]
fn one_that_does_not_finish_its_proof_makes_room_in_the_end() {
    let handshakes = handshakes(1, 10);
    let start = Instant::now();
    let proving = handshakes.begin(address(1), start).unwrap();
    proving.note_startup();
    let refused = handshakes
        .begin(address(2), start + SILENT_GRACE)
        .unwrap_err();
    assert_eq!((refused.setting, refused.max), ("handshakes_max", 1));
    let next = handshakes
        .begin(address(2), start + EXCHANGE_GRACE)
        .unwrap();
    assert!(proving.evicted.is_cancelled());
    // An evicted connection gives back its place once.
    drop(proving);
    assert_eq!(handshakes.lock().by_id.len(), 1);
    drop(next);
    assert!(handshakes.lock().by_id.is_empty());
}
