//! What is compressed comes out again, also after its holes were filled with something else.

use proptest::prelude::*;

use super::*;

fn decompressed(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(bytes).unwrap()
}

/// Fills the holes of a body and of its compressed form alike.
fn check(raw: &[u8], holes: &[Range<usize>]) -> usize {
    let mut compressed = compress(raw, holes);
    assert_eq!(decompressed(&compressed.bytes), raw);
    let mut raw = raw.to_vec();
    for (number, (hole, at)) in holes.iter().zip(&compressed.placeholders).enumerate() {
        let other: Vec<u8> = (0..hole.len()).map(|byte| (byte * 7 + number) as u8).collect();
        raw[hole.clone()].copy_from_slice(&other);
        compressed.bytes[*at..*at + hole.len()].copy_from_slice(&other);
    }
    assert_eq!(decompressed(&compressed.bytes), raw);
    assert_eq!(compressed.placeholders.len(), holes.len());
    compressed.bytes.len()
}

#[test]
fn what_repeats_is_copied_and_holes_are_not() {
    let part = b"job=node,instance=10.0.0.1:9100,value=________;";
    let raw = part.repeat(1_000);
    let holes: Vec<_> =
        (0..1_000).map(|number| number * part.len() + 38..number * part.len() + 46).collect();
    // Eight bytes of a hole, its tag, and a copy of the rest.
    assert!(check(&raw, &holes) < 15 * 1_000);
    assert_eq!(check(b"", &[]), 1);
    assert_eq!(check(b"abc", std::slice::from_ref(&(0..3))), 5);
}

#[test]
fn long_runs_and_long_literals() {
    check(&[7; 100_000], &[]);
    check(&[7; 100_000], &[10..20, 70_000..70_100]);
    let random: Vec<u8> =
        (0..200_000_u64).map(|at| crate::scenarios::series::shape::mix(1, at) as u8).collect();
    check(&random, std::slice::from_ref(&(100..199_000)));
}

proptest! {
    #[test]
    fn anything_comes_out_again(
        words in proptest::collection::vec(0_usize..6, 0..400),
        every in 1_usize..9,
    ) {
        let texts = ["__name__", "cluster", "eu-west", "node-0001", "0", "http_requests_total"];
        let (mut raw, mut holes) = (Vec::new(), Vec::new());
        for (number, word) in words.into_iter().enumerate() {
            raw.extend_from_slice(texts[word].as_bytes());
            if number % every == 0 {
                holes.push(raw.len() - texts[word].len()..raw.len());
            }
        }
        check(&raw, &holes);
    }
}
