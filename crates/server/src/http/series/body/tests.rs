//! Bodies that are compressed, whole and in pieces.

use std::io::Write as _;

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use egret_base::settings::ByteSize;
use egret_series::SeriesConfig;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Decoder, Encoding, LARGE_BYTES, LARGE_GZIP_BYTES, process_body, read_decompressed};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn request(body: Vec<u8>, encoding: &str) -> Request {
    let request = Request::builder().header("content-encoding", encoding);
    request.body(Body::from(body)).unwrap()
}

#[tokio::test]
async fn a_body_may_not_become_too_large() {
    let config = SeriesConfig { decoded_bytes_max: ByteSize(1_000), ..SeriesConfig::default() };
    let fits = gzip(&[7; 1_000]);
    assert_eq!(
        read_decompressed(request(fits.clone(), "gzip"), &config).await.unwrap(),
        [7; 1_000][..]
    );
    let bomb = gzip(&vec![0; 10_000_000]);
    let refused = read_decompressed(request(bomb, "gzip"), &config).await.unwrap_err();
    assert_eq!((refused.status, refused.detail.contains("series.decoded_bytes_max")), (413, true));
    assert!(refused.detail.ends_with(": send less or raise the setting"));
    let broken = read_decompressed(request(fits[..20].to_vec(), "gzip"), &config).await;
    assert_eq!(broken.unwrap_err().status, 400);
    let other = read_decompressed(request(fits, "br"), &config).await;
    assert_eq!(other.unwrap_err().status, 415);
}

#[tokio::test]
async fn large_bodies_are_decompressed_alike_on_other_threads() {
    let config = SeriesConfig::default();
    // Its bytes repeat too seldom to become few.
    let large: Vec<u8> = (0..LARGE_BYTES as u32)
        .flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let compressed = gzip(&large);
    assert!(compressed.len() > LARGE_GZIP_BYTES);
    let body = read_decompressed(request(compressed, "gzip"), &config).await.unwrap();
    assert!(body == large);
    for (body, is_elsewhere) in [(body, true), (Bytes::from_static(b"small"), false)] {
        let here = std::thread::current().id();
        let length = body.len();
        let worked = process_body(body, async move |body| {
            Ok((body.len(), std::thread::current().id() != here))
        });
        assert_eq!(worked.await.unwrap(), (length, is_elsewhere));
    }
}

#[test]
fn pieces_of_any_size_become_the_whole() {
    let whole: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let compressed = gzip(&whole);
    for size in [1, 7, 1_000, compressed.len()] {
        let mut decoder = Decoder::new(Encoding::Gzip);
        let mut read = Vec::new();
        for piece in compressed.chunks(size) {
            read.extend(decoder.decode(piece.to_vec().into()).unwrap());
        }
        read.extend(decoder.finish().unwrap());
        assert!(read == whole, "in pieces of {size}");
    }
    let mut decoder = Decoder::new(Encoding::Gzip);
    decoder.decode(compressed[..50].to_vec().into()).unwrap();
    assert!(decoder.finish().is_err(), "it is cut off");
}
