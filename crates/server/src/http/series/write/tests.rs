//! What a sender says that its body is.

use http::{HeaderMap, HeaderValue, header};

use super::{Version, version};

fn read(content_type: &'static str, encoding: &'static str) -> Option<Version> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    version(&headers).ok()
}

#[test]
fn the_version_is_in_the_content_type() {
    const V2: &str = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    assert_eq!(read("application/x-protobuf", "snappy"), Some(Version::One));
    let named = "application/x-protobuf; proto=prometheus.WriteRequest";
    assert_eq!(read(named, "snappy"), Some(Version::One));
    assert_eq!(read(V2, "snappy"), Some(Version::Two));
    assert_eq!(read(V2, "gzip"), None);
    assert_eq!(read("application/x-protobuf;proto=other", "snappy"), None);
    assert_eq!(read("application/json", "snappy"), None);
    assert_eq!(version(&HeaderMap::new()).ok(), None);
}
