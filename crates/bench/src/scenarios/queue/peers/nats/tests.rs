//! Messages in pieces, and which versions keep which promise.

use super::*;

#[test]
fn a_message_is_taken_when_it_is_whole() {
    let sent = b"MSG t 1 $JS.ACK.T.C.1.5.5.0.0 3\r\nabc\r\n";
    for length in 0..sent.len() {
        assert!(parse_message(&sent[..length]).unwrap().is_none(), "{length} bytes");
    }
    let (message, used) = parse_message(sent).unwrap().unwrap();
    assert_eq!((message.subject, message.body), (&b"t"[..], &b"abc"[..]));
    assert_eq!(message.reply, b"$JS.ACK.T.C.1.5.5.0.0");
    assert_eq!(message.subscription, TASK_SUBSCRIPTION);
    assert_eq!(used, sent.len());
}

#[test]
fn what_does_not_sync_is_not_measured_as_if_it_did() {
    assert!(check_version(Durability::Fsync, "nats-server: v2.9.10").is_err());
    assert!(check_version(Durability::Interval, "nats-server: v2.9.10").is_err());
    assert!(check_version(Durability::None, "nats-server: v2.9.10").is_ok());
    assert!(check_version(Durability::Fsync, "nats-server: v2.10.1").is_ok());
    assert!(check_version(Durability::Fsync, "nats-server: v3.0.0").is_ok());
}
