//! Numbers of every length, and what is none.

use super::*;
use egret_base::codec::put_varint;

#[test]
fn a_varint_of_any_length_is_read_either_way() {
    for shift in 0..64 {
        for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> (63 - shift)] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            let length = bytes.len();
            let mut message = Message::new(&bytes, "test");
            assert_eq!(message.read_varint(), Ok(number));
            assert!(message.is_empty());
            bytes.resize(8.max(length), 0xff);
            let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let expected = (length <= 8).then_some((number, length));
            assert_eq!(decode_varint_word(word), expected, "{number}");
        }
    }
}

#[test]
fn what_is_no_number_says_where() {
    let check = |bytes: &[u8], expected: &str| {
        let error = Message::new(bytes, "Sample").read_field().expect_err("it is malformed");
        assert_eq!(error.to_string(), expected);
    };
    check(b"\x08\xff", "Sample is truncated at byte 1: send the whole message");
    let long = "Sample has a number of more than 64 bits at byte 1";
    check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", long);
    check(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", long);
    check(b"\x00", "Sample has a field key 0 that cannot be at byte 0");
    check(b"\x0b", "Sample has a field key 11 that cannot be at byte 0");
    check(b"\x0a\x05abc", "Sample is truncated at byte 2: send the whole message");
    check(b"\x09\0\0", "Sample is truncated at byte 1: send the whole message");
    check(b"\x0d\0\0", "Sample is truncated at byte 1: send the whole message");
}
