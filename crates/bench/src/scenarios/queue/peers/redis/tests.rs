//! Replies that arrive in pieces.

use super::*;

#[test]
fn a_reply_is_taken_when_it_is_whole() {
    let sent = b"*1\r\n*2\r\n$1\r\nt\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\np\r\n$8\r\n\x05\0\0\0\0\0\0\0\r\n";
    for length in 0..sent.len() {
        assert!(parse_reply(&sent[..length]).unwrap().is_none(), "{length} bytes");
    }
    let (value, used) = parse_reply(sent).unwrap().unwrap();
    assert_eq!(used, sent.len());
    let mut events = Events::default();
    assert_eq!(read_tasks(&value, &mut events).unwrap(), 1);
    assert_eq!(events.delivered, [(5, 0..3)]);
    assert_eq!(events.handles, b"1-0");
}

#[test]
fn a_refusal_is_an_error() {
    let error = parse_reply(b"-ERR no\r\n").unwrap_err().to_string();
    assert_eq!(error, "redis refused: ERR no");
}
