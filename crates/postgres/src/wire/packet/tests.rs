//! Known packets decode; arbitrary bytes never panic and never grow.

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use proptest::prelude::*;

use super::*;

/// A packet as a client builds it, without its length field.
fn startup(parameters: &[(&str, &str)]) -> BytesMut {
    let mut packet = BytesMut::new();
    frontend::startup_message(parameters.iter().copied(), &mut packet).unwrap();
    packet.split_off(4)
}

#[test]
fn decodes_the_requests_without_parameters() {
    let mut packet = BytesMut::new();
    frontend::ssl_request(&mut packet);
    assert_eq!(FirstPacket::decode(&packet[4..]), Ok(FirstPacket::Ssl));
    let mut packet = BytesMut::new();
    frontend::cancel_request(4711, -5, &mut packet);
    let key = BackendKey { pid: 4711, secret: -5 };
    assert_eq!(FirstPacket::decode(&packet[4..]), Ok(FirstPacket::Cancel(key)));
    let gss = 0x04D2_1630_u32.to_be_bytes();
    assert_eq!(FirstPacket::decode(&gss), Ok(FirstPacket::GssEncryption));
}

#[test]
fn the_last_value_of_a_parameter_counts() {
    let packet = startup(&[("user", "a"), ("user", "b"), ("_pq_.x", "1"), ("database", "")]);
    let FirstPacket::Startup(decoded) = FirstPacket::decode(&packet).unwrap() else {
        panic!("a startup packet was expected");
    };
    assert_eq!(decoded.parameters["user"], "b");
    assert_eq!(decoded.parameters["database"], "");
    assert_eq!(decoded.protocol_options, ["_pq_.x"]);
}

#[test]
fn says_what_is_wrong() {
    let check = |packet: &[u8], wanted: &str| {
        let error = FirstPacket::decode(packet).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    check(b"", "invalid length of startup packet");
    check(b"\0\x02\0\0user\0a\0\0", "unsupported frontend protocol 2.0");
    check(b"\0\x03\0\0user\0a\0", "expected terminator");
    check(b"\0\x03\0\0user\0a\0\0more", "expected terminator");
    check(b"\0\x03\0\0user\0\xFF\0\0", "must be UTF-8");
    check(b"\x04\xD2\x16\x2Eshort", "invalid length of cancel request");
}

#[test]
fn decodes_the_choice_of_a_mechanism() {
    let mut message = BytesMut::new();
    frontend::sasl_initial_response("SCRAM-SHA-256", b"n,,n=,r=x", &mut message).unwrap();
    let decoded = SaslInitialResponse::decode(&message[5..]).unwrap();
    assert_eq!(decoded.mechanism, "SCRAM-SHA-256");
    assert_eq!(decoded.data, b"n,,n=,r=x");
    assert!(SaslInitialResponse::decode(b"SCRAM-SHA-256\0\0\0\0\x09n,,").is_err());
    assert!(SaslInitialResponse::decode(b"SCRAM-SHA-256\0\xFF\xFF\xFF\xFF").is_err());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(packet in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = FirstPacket::decode(&packet);
        let _ = SaslInitialResponse::decode(&packet);
    }

    /// Damaged startup packets reach deeper into the decoder than arbitrary bytes do.
    #[test]
    fn damaged_packets_never_panic_nor_grow(
        names in prop::collection::vec("[a-z_.]{0,12}", 0..6),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        let mut packet = startup(&pairs);
        let position = at.index(packet.len());
        packet[position] = byte;
        if let Ok(FirstPacket::Startup(decoded)) = FirstPacket::decode(&packet) {
            let held: usize = decoded
                .parameters
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum();
            prop_assert!(held <= packet.len());
        }
    }

    #[test]
    fn parameters_round_trip(
        parameters in prop::collection::btree_map("[a-z]{1,9}", "[^\0]{0,9}", 0..6),
    ) {
        let pairs: Vec<(&str, &str)> = parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let decoded = FirstPacket::decode(&startup(&pairs));
        let Ok(FirstPacket::Startup(decoded)) = decoded else {
            return Err(TestCaseError::fail("a startup packet was expected"));
        };
        prop_assert_eq!(decoded.parameters, parameters);
    }
}
