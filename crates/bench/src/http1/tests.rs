//! Responses that arrive in pieces.

use super::*;

/// Not taken before its last byte, then taken whole.
fn check(sent: &[u8], status: u64, body: &[u8]) {
    for length in 0..sent.len() {
        assert!(parse_response(&sent[..length]).unwrap().is_none(), "{length}");
    }
    let more = [sent, b"HTTP/1.1 200"].concat();
    let taken = parse_response(&more).unwrap().unwrap();
    assert_eq!((taken.status, &*taken.body), (status, body));
    assert_eq!(taken.total_length(), sent.len());
}

#[test]
fn a_response_is_taken_when_it_is_whole() {
    let sized = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ndate: today\r\n\r\nhello";
    check(sized, 200, b"hello");
    check(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"");
}

#[test]
fn chunks_are_put_together() {
    let sent = b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\nA\r\n, it is me\r\n0\r\n\r\n";
    check(sent, 503, b"hello, it is me");
}

#[test]
fn what_is_no_http_is_refused() {
    assert!(parse_response(b"220 mail.example ready\r\n").is_err());
    assert!(parse_response(b"HTTP/1.1 200 OK\r\ncontent-length: much\r\n\r\n").is_err());
}
