//! Blocks, real and hostile.

use super::*;

#[test]
fn what_was_encoded_is_decoded() {
    let mut snappy = Snappy::default();
    for length in [0, 1, 70_000, 10] {
        let bytes: Vec<u8> = (0..length).map(|index: u32| (index / 7) as u8).collect();
        let decoded = snappy.decode(&encode(&bytes), 1 << 20).expect("it was just encoded");
        assert_eq!(decoded, bytes);
    }
    snappy.shrink(16);
    assert!(snappy.buffer.capacity() < 70_000);
}

#[test]
fn a_bomb_is_refused_by_what_it_promises() {
    let bomb = encode(&vec![0; 1 << 20]);
    let error = Snappy::default().decode(&bomb, 1 << 10).expect_err("it is too large");
    assert_eq!(
        error.to_string(),
        "limit series.decoded_bytes_max is 1024, but 1048576 came: send less or raise the setting"
    );
    // It promises 1 GiB and is six bytes long: nothing of the sort is allocated.
    let mut snappy = Snappy::default();
    let error = snappy.decode(&[0x80, 0x80, 0x80, 0x80, 0x04, 0], u64::MAX);
    assert!(matches!(error, Err(WireError::Compression { .. })));
    assert_eq!(snappy.buffer.capacity(), 0);
}

#[test]
fn what_is_no_block_is_an_error() {
    for bytes in
        [&b""[..], b"\xff\xff\xff\xff\xff\xff", b"\x05hello", b"\x10\x00", b"{\"json\": 1}"]
    {
        assert!(Snappy::default().decode(bytes, 1 << 20).is_err(), "{bytes:?}");
    }
}
