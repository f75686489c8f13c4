//! Encodings by their names, and bodies that are decompressed within bounds.

use std::io::Write as _;

use axum::body::Body;
use axum::extract::Request;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;

use super::*;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn encoding_of(values: &[&'static str]) -> Result<ContentEncoding, String> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(value));
    }
    ContentEncoding::of(&headers).map_err(|error| error.to_string())
}

#[test]
fn an_encoding_is_read_by_any_of_its_names() {
    assert_eq!(encoding_of(&[]), Ok(ContentEncoding::Identity));
    assert_eq!(encoding_of(&["", "identity"]), Ok(ContentEncoding::Identity));
    assert_eq!(encoding_of(&["GZip"]), Ok(ContentEncoding::Gzip));
    assert_eq!(encoding_of(&["x-gzip"]), Ok(ContentEncoding::Gzip));
    assert_eq!(encoding_of(&["zstd"]), Ok(ContentEncoding::Zstd));
    for values in [&["br"][..], &["gzip, zstd"], &["gzip", "gzip"]] {
        let refused = encoding_of(values).unwrap_err();
        assert!(refused.contains("Content-Encoding"), "{refused}");
    }
}

#[tokio::test]
async fn a_body_is_decompressed_within_its_bound() {
    let memory = || BodyMemory::from_request(&Request::new(Body::empty()));
    // Less than a thread of its own is worth, and more: its bytes repeat too seldom to become few.
    let mut value = 1_u32;
    let large: Vec<u8> = std::iter::repeat_with(|| {
        value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (value >> 24) as u8
    })
    .take(200_000)
    .collect();
    for plain in [&b"{}"[..], &large] {
        let max = plain.len() as u64;
        let bodies = [
            (ContentEncoding::Identity, plain.to_vec()),
            (ContentEncoding::Gzip, gzip(plain)),
            (ContentEncoding::Zstd, zstd::encode_all(plain, 3).unwrap()),
        ];
        for (encoding, body) in bodies {
            let decoded = encoding.decode(body.clone().into(), max, memory()).await;
            assert_eq!(decoded.unwrap(), plain, "{encoding:?}");
            if encoding != ContentEncoding::Identity {
                let refused = encoding.decode(body.clone().into(), max - 1, memory()).await;
                let is_too_large = matches!(refused, Err(RequestError::BodyTooLarge { .. }));
                assert!(is_too_large, "{encoding:?}");
                let half = body[..body.len() / 2].to_vec();
                let broken = encoding.decode(half.into(), max, memory()).await;
                let is_broken = matches!(broken, Err(RequestError::BodyNotDecoded { .. }));
                assert!(is_broken, "{encoding:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_window_of_zstd_beyond_its_bound_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(ZSTD_WINDOW_LOG_MAX + 1).unwrap();
    encoder.write_all(&[7; 1_000]).unwrap();
    let body = encoder.finish().unwrap();
    let memory = BodyMemory::from_request(&Request::new(Body::empty()));
    let refused = ContentEncoding::Zstd.decode(body.into(), 1 << 20, memory).await;
    assert!(matches!(refused, Err(RequestError::BodyNotDecoded { .. })));
}
