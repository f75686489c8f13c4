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
    assert_eq!(parse_version(&HeaderMap::new()).ok(), None);
}
