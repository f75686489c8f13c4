//! Hashes that differ where the bytes do.

use std::collections::HashSet;
use std::hash::BuildHasher;

use super::QuickHash;

#[test]
fn what_differs_little_has_another_hash() {
    let hash = QuickHash::default();
    let mut seen = HashSet::new();
    for length in 0..40_usize {
        for at in 0..=length {
            let mut bytes = vec![0_u8; length];
            if at < length {
                bytes[at] = 1;
            }
            assert!(seen.insert(hash.hash_one(&bytes[..])), "{length} {at}");
        }
    }
    // The low bits choose a place in a table.
    let low: HashSet<u64> = seen.iter().map(|hash| hash % 1024).collect();
    assert!(low.len() > 400, "{}", low.len());
}
