//! Messages that arrive in pieces.

use super::*;

#[test]
fn messages_are_whole_however_they_arrive() {
    let mut sent = BytesMut::new();
    let messages: [&[u8]; 4] = [b"one", b"", b"three and some more", b"4"];
    for message in messages {
        sent.put_u8(0);
        sent.put_u32(message.len() as u32);
        sent.put_slice(message);
    }
    for step in 1..=sent.len() {
        let (mut inbox, mut seen) = (BytesMut::new(), Vec::new());
        for chunk in sent.chunks(step) {
            let chunk = Bytes::copy_from_slice(chunk);
            let before = seen.len();
            let mut take = |message: &[u8]| {
                seen.push(message.to_vec());
                Ok(())
            };
            let any = process_chunk(&mut inbox, chunk, &mut take).unwrap();
            assert_eq!(any, seen.len() > before);
        }
        assert_eq!(seen, messages, "in pieces of {step}");
        assert!(inbox.is_empty());
    }
}

#[test]
fn a_compressed_message_is_refused() {
    let chunk = Bytes::from_static(&[1, 0, 0, 0, 0]);
    assert!(process_chunk(&mut BytesMut::new(), chunk, &mut |_| Ok(())).is_err());
}
