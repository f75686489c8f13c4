//! Lines and numbers.

use super::*;

#[test]
fn a_line_is_taken_when_it_is_whole() {
    assert_eq!(line(b"OK\r\nmore"), Some((&b"OK"[..], 4)));
    assert_eq!(line(b"\r\n"), Some((&b""[..], 2)));
    assert_eq!(line(b"OK\r"), None);
    assert_eq!(number(b"17").unwrap(), 17);
    assert!(number(b"-1").is_err());
    assert!(number(b"").is_err());
}
