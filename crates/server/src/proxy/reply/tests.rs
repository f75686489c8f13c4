//! The proxy's messages are read by an independent client.

use super::*;

#[test]
fn an_error_carries_its_fields_and_nothing_more() {
    let refusal = ConnectionRefusal::new("28P01", "no\0Cinjected").with_hint("try again");
    let reply = fatal_error(&refusal);
    assert_eq!(&reply[..], b"E\0\0\0\x32SFATAL\0VFATAL\0C28P01\0MnoCinjected\0Htry again\0\0");
}

#[test]
fn versions_are_negotiated_down_to_3_0() {
    let reply = negotiate_version(&["_pq_.x".to_owned()]);
    assert_eq!(&reply[..], b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
}

#[test]
fn the_one_mechanism_is_offered() {
    assert_eq!(&sasl_mechanisms()[..], b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0");
    assert_eq!(&sasl_continue("r=x")[..], b"R\0\0\0\x0b\0\0\0\x0br=x");
    assert_eq!(&authenticated("v=x")[..], b"R\0\0\0\x0b\0\0\0\x0cv=xR\0\0\0\x08\0\0\0\0");
}
