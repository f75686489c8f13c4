//! What a stream's task learns of a response.

use http_body_util::BodyExt;

use super::*;

#[tokio::test]
async fn the_bytes_of_a_body_are_counted_and_its_end_waits_for_the_peer() {
    let progress = Arc::<ResponseProgress>::default();
    let mut body = OutgoingBody::new(Body::from(vec![b'x'; 300_000]), Some(progress.clone()));
    while let Some(frame) = body.frame().await {
        frame.unwrap();
    }
    assert_eq!(progress.bytes.load(Ordering::Relaxed), 300_000);
    assert!(progress.waits_for_peer.load(Ordering::Relaxed));
}
