//! Responses that arrive in pieces.

use super::*;

#[test]
fn a_response_is_taken_when_it_is_whole() {
    let sent = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ndate: today\r\n\r\nhello";
    for length in 0..sent.len() {
        assert!(response(&sent[..length]).unwrap().is_none(), "{length}");
    }
    let expected = (200, &b"hello"[..], sent.len());
    assert_eq!(response(sent).unwrap(), Some(expected));
    let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(response(empty).unwrap(), Some((204, &b""[..], empty.len())));
    assert!(response(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
}

#[test]
fn a_field_is_found() {
    let json = r#"{"items":[{"id":"q1","queue":"rest","payload":"0017","lease":"abc"}]}"#;
    assert_eq!(field(json, "id"), Some("q1"));
    assert_eq!(field(json, "lease"), Some("abc"));
    assert_eq!(field(json, "payload"), Some("0017"));
    assert_eq!(field(json, "tags"), None);
}
