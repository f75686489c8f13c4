//! The boundaries between messages are found however the stream is cut.

use proptest::prelude::*;

use super::*;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![tag];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    message
}

#[test]
fn only_ready_for_query_outside_of_a_transaction_is_idle() {
    let after = |messages: &[Vec<u8>]| {
        let mut lengths = MessageLengths::default();
        lengths.advance(&messages.concat());
        (lengths.is_between_messages(), lengths.is_idle())
    };
    assert_eq!(after(&[message(b'C', b"SELECT 1\0")]), (true, false));
    assert_eq!(after(&[message(b'Z', b"I")]), (true, true));
    assert_eq!(after(&[message(b'Z', b"T")]), (true, false));
    assert_eq!(after(&[message(b'Z', b"I"), message(b'A', b"note")]), (true, true));
    assert_eq!(after(&[message(b'Z', b"I"), message(b'T', b"")]), (true, false));
    assert_eq!(after(&[message(b'Z', b"I"), vec![b'D']]), (false, false));
    assert_eq!(after(&[message(b'D', b"row")[..7].to_vec()]), (false, false));
}

proptest! {
    #[test]
    fn boundaries_do_not_depend_on_the_pieces(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
        piece in 1_usize..50,
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|body| message(b'D', body)).collect();
        let mut ends = Vec::new();
        let mut position = 0;
        for body in &bodies {
            position += body.len() + 5;
            ends.push(position);
        }
        let mut lengths = MessageLengths::default();
        let mut followed = 0;
        for part in stream.chunks(piece) {
            lengths.advance(part);
            followed += part.len();
            prop_assert_eq!(lengths.is_between_messages(), ends.contains(&followed));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(stream in prop::collection::vec(any::<u8>(), 0..200)) {
        MessageLengths::default().advance(&stream);
    }
}
