//! Every column comes back, and those that matter are small.

use egret_log::simulated::SplitMix64;
use proptest::prelude::*;

use super::*;

fn encoded(numbers: &[i64], effort: Effort) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(numbers, effort, &mut bytes);
    let mut reader = Reader::new(&bytes, WHAT);
    let mut again = vec![7];
    decode(&mut reader, numbers.len(), &mut again).expect("it was written so");
    assert_eq!(&again[1..], numbers);
    assert!(reader.rest().is_empty());
    bytes
}

fn any_column() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![
        8 => -5..50_i64,
        2 => Just(0),
        1 => -2_000_000..3_000_000_i64,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
    ];
    let steps = prop_oneof![
        prop::collection::vec(step, 0..400),
        prop::collection::vec(0..1000_i64, 0..3000),
        (0..3000_usize, any::<i64>()).prop_map(|(count, step)| vec![step; count]),
        prop::collection::vec(any::<i64>(), 0..200),
    ];
    (steps, 0..3_u8).prop_map(|(mut numbers, sums)| {
        for _ in 0..sums {
            let mut sum = 0_i64;
            for number in &mut numbers {
                sum = sum.wrapping_add(*number);
                *number = sum;
            }
        }
        numbers
    })
}

proptest! {
    #[test]
    fn any_column_comes_back(numbers in any_column()) {
        encoded(&numbers, Effort::Quick);
        encoded(&numbers, Effort::Thorough);
    }

    #[test]
    fn any_bytes_are_a_column_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..9000_usize) {
        let mut out = Vec::new();
        if decode(&mut Reader::new(&bytes, WHAT), count, &mut out).is_ok() {
            prop_assert_eq!(out.len(), count);
        }
    }
}

#[test]
fn a_damaged_column_is_refused_or_another_one() {
    let mut chance = SplitMix64::new(5);
    let numbers: Vec<i64> = (0..500).map(|at| at * at % 977).collect();
    for effort in [Effort::Quick, Effort::Thorough] {
        let bytes = encoded(&numbers, effort);
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            chance.damage(&mut damaged);
            let mut out = Vec::new();
            if decode(&mut Reader::new(&damaged, WHAT), 500, &mut out).is_ok() {
                assert_eq!(out.len(), 500);
            }
        }
    }
}

#[test]
fn regular_times_take_a_few_bytes() {
    let times_ms: Vec<i64> = (0..8640).map(|at| 1_760_000_000_000 + at * 15_000).collect();
    assert!(encoded(&times_ms, Effort::Quick).len() <= 12);
}

#[test]
fn jitter_of_some_milliseconds_takes_half_a_byte() {
    let mut chance = SplitMix64::new(1);
    let times_ms: Vec<i64> = (0..480)
        .map(|at| 1_760_000_000_000 + at * 15_000 + chance.next_below(7) as i64 - 3)
        .collect();
    let length = encoded(&times_ms, Effort::Quick).len();
    assert!(length < 480 / 2 + 20, "{length}");
}

#[test]
fn a_counter_that_begins_anew_does_not_widen_the_rest() {
    let mut chance = SplitMix64::new(2);
    let mut value = 1 << 40;
    let plain: Vec<i64> = (0..480)
        .map(|_| {
            value += chance.next_below(16) as i64;
            value
        })
        .collect();
    let mut anew = plain.clone();
    anew[200..].iter_mut().for_each(|number| *number -= 1 << 40);
    let (plain, anew) = (encoded(&plain, Effort::Quick).len(), encoded(&anew, Effort::Quick).len());
    assert!(anew <= plain + 16, "{plain} and {anew}");
}
