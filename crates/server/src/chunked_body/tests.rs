//! Pieces of bodies.

use http_body_util::BodyExt;

use super::*;

#[tokio::test]
async fn a_body_in_pieces_is_the_same_body() {
    let whole: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
    let mut body = ChunkedBody::new(Body::from(whole.clone()));
    assert_eq!(body.size_hint().exact(), Some(300_000));
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() <= PIECE_BYTES_MAX);
        read.extend_from_slice(&data);
        assert_eq!(body.size_hint().lower(), (whole.len() - read.len()) as u64);
    }
    assert!(read == whole && body.is_end_stream());
}
