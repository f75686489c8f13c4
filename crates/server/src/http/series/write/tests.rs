//! What a sender says that its body is.

use http::{HeaderMap, HeaderValue, header};

use super::{Version, parse_version};

fn version_of(content_type: &'static str, encoding: &'static str) -> Option<Version> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    parse_version(&headers).ok()
}

#[test]
fn the_version_is_in_the_content_type() {
    const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    assert_eq!(version_of("application/x-protobuf", "snappy"), Some(Version::One));
    let named = "application/x-protobuf; proto=prometheus.WriteRequest";
    assert_eq!(version_of(named, "snappy"), Some(Version::One));
    assert_eq!(version_of(V2, "snappy"), Some(Version::Two));
    assert_eq!(version_of(V2, "gzip"), None);
    assert_eq!(version_of("application/x-protobuf;proto=other", "snappy"), None);
    assert_eq!(version_of("application/json", "snappy"), None);
}

#[test]
fn a_sender_that_declares_nothing_speaks_version_1() {
    assert_eq!(parse_version(&HeaderMap::new()).ok(), Some(Version::One));
    assert_eq!(version_of("application/x-protobuf", ""), Some(Version::One));
    assert_eq!(version_of("", "snappy"), Some(Version::One));
    assert_eq!(version_of("", "gzip"), None);
    assert_eq!(version_of("text/plain", ""), None);
    let mut headers = HeaderMap::new();
    let not_text = HeaderValue::from_bytes(b"\xff").expect("a header may have it");
    headers.insert(header::CONTENT_TYPE, not_text);
    assert_eq!(parse_version(&headers).ok(), None);
}
