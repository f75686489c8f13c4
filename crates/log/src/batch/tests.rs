//! What a batch holds.

use super::*;

#[test]
fn records_come_back_in_order_and_a_failed_encoder_leaves_nothing() {
    let mut batch = Batch::new();
    batch.push(b"one");
    batch.push_with(|buffer| buffer.extend_from_slice(b"two, longer"));
    let failed = batch.try_push_with(|buffer| {
        buffer.extend_from_slice(b"half");
        Err("no")
    });
    assert_eq!(failed, Err("no"));
    batch.push(b"");
    let bodies: Vec<&[u8]> = batch.iter().collect();
    assert_eq!(bodies, [b"one".as_slice(), b"two, longer", b""]);
    assert_eq!((batch.len(), batch.get(3)), (3, None));
    assert_eq!(batch.frame_bytes() % 8, 0);
    batch.clear();
    assert!(batch.is_empty());
}
