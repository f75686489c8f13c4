//! Every bit of every number comes back, whatever is beside it.

use egret_log::simulated::SplitMix64;
use egret_metrics_model::{NORMAL_NAN_BITS, STALE_NAN_BITS};
use proptest::prelude::*;

use super::*;

fn encoded(numbers: &[f64], effort: Effort) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(numbers, effort, &mut bytes);
    let mut again = vec![1.5];
    decode(&bytes, numbers.len(), &mut again).expect("it was written so");
    let bits =
        |numbers: &[f64]| -> Vec<u64> { numbers.iter().map(|number| number.to_bits()).collect() };
    assert_eq!(bits(&again[1..]), bits(numbers));
    bytes
}

fn nasty() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(f64::from_bits(STALE_NAN_BITS)),
        Just(f64::from_bits(NORMAL_NAN_BITS)),
        Just(-0.0),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(f64::from_bits(1)),
        Just(f64::MAX),
        Just((1_u64 << 53) as f64),
        Just(9_223_372_036_854_775_808.0),
        Just(-9_223_372_036_854_775_808.0),
        Just(0.1 + 0.2),
        any::<u64>().prop_map(f64::from_bits),
    ]
}

fn any_numbers() -> impl Strategy<Value = Vec<f64>> {
    let common = prop_oneof![
        (0..15_u32, 0..1_000_000_i64)
            .prop_map(|(digits, number)| number as f64 / 10_f64.powi(digits as i32)),
        (0..1_i64 << 52).prop_map(|number| number as f64),
        -1e6..1e6_f64,
    ];
    let mixed =
        (0..20_u32, common.clone(), nasty()).prop_map(|(which, common, nasty)| match which {
            0 => nasty,
            _ => common,
        });
    prop_oneof![
        prop::collection::vec(mixed, 1..600),
        prop::collection::vec(common, 1..600),
        prop::collection::vec(nasty(), 1..100),
        (0..6_i32, prop::collection::vec((0..1000_i64, 0..200_u32, nasty()), 1..600)).prop_map(
            |(digits, steps)| {
                let mut sum = 0;
                let next = |(step, odd, nasty)| {
                    sum += step;
                    if odd == 0 { nasty } else { sum as f64 / 10_f64.powi(digits) }
                };
                steps.into_iter().map(next).collect()
            }
        ),
    ]
}

proptest! {
    #[test]
    fn any_numbers_come_back(numbers in any_numbers()) {
        encoded(&numbers, Effort::Quick);
        encoded(&numbers, Effort::Thorough);
    }

    #[test]
    fn any_bytes_are_a_column_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 1..9000_usize) {
        let mut out = Vec::new();
        if decode(&bytes, count, &mut out).is_ok() {
            prop_assert_eq!(out.len(), count);
        }
    }
}

#[test]
fn a_damaged_column_is_refused_or_another_one() {
    let mut chance = SplitMix64::new(6);
    let integers: Vec<f64> = (0..300).map(|at| f64::from(at * at) / 10.0).collect();
    let odd: Vec<f64> = (0..300).map(|at| f64::from(at).sqrt()).collect();
    for numbers in [integers, odd] {
        for effort in [Effort::Quick, Effort::Thorough] {
            let bytes = encoded(&numbers, effort);
            for _ in 0..3000 {
                let mut damaged = bytes.clone();
                chance.damage(&mut damaged);
                let mut out = Vec::new();
                if decode(&damaged, 300, &mut out).is_ok() {
                    assert_eq!(out.len(), 300);
                }
            }
        }
    }
}

#[test]
fn a_marker_does_not_spoil_a_chunk() {
    let mut chance = SplitMix64::new(3);
    let mut sum = 0;
    let mut numbers: Vec<f64> = (0..480)
        .map(|_| {
            sum += chance.next_below(16);
            sum as f64
        })
        .collect();
    let plain = encoded(&numbers, Effort::Quick);
    numbers[77] = f64::from_bits(STALE_NAN_BITS);
    numbers[300] = f64::INFINITY;
    let odd = encoded(&numbers, Effort::Quick);
    assert_eq!((encoding_name(&plain), encoding_name(&odd)), ("scaled", "scaled"));
    assert!(odd.len() <= plain.len() + 40, "{} and {}", plain.len(), odd.len());
}

#[test]
fn each_kind_of_numbers_has_its_encoding() {
    let name = |numbers: &[f64]| encoding_name(&encoded(numbers, Effort::Thorough));
    assert_eq!(name(&[f64::NAN; 100]), "same");
    let hundredths: Vec<f64> = (0..100).map(|at| f64::from(at * 7 % 13) / 100.0).collect();
    assert_eq!(name(&hundredths), "scaled");
    let roots: Vec<f64> = (0..1000).map(|at| f64::from(at).sqrt()).collect();
    assert_eq!(name(&roots), "pco");
    let mut chance = SplitMix64::new(9);
    let noise: Vec<f64> = (0..50).map(|_| f64::from_bits(chance.next_below(u64::MAX))).collect();
    assert_eq!(name(&noise), "raw");
}

#[test]
fn multiples_are_divided() {
    let mut chance = SplitMix64::new(4);
    let steps: Vec<u64> = (0..480).map(|_| chance.next_below(1 << 10)).collect();
    let bytes = |scale: u64| {
        let numbers: Vec<f64> = steps.iter().map(|step| (step * scale) as f64).collect();
        encoded(&numbers, Effort::Quick).len()
    };
    assert!(bytes(4096) <= bytes(1) + 4);
}
