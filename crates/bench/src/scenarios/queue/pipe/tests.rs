//! Lines and numbers.

use super::*;

#[test]
fn a_line_is_taken_when_it_is_whole() {
    assert_eq!(split_line(b"OK\r\nmore"), Some((&b"OK"[..], 4)));
    assert_eq!(split_line(b"\r\n"), Some((&b""[..], 2)));
    assert_eq!(split_line(b"OK\r"), None);
    assert_eq!(parse_number(b"17").unwrap(), 17);
    assert!(parse_number(b"-1").is_err());
    assert!(parse_number(b"").is_err());
}
