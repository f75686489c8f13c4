//! Every list comes back, and none is believed that cannot be.

use egret_log::simulated::SplitMix64;
use proptest::prelude::*;

use super::*;

fn encoded(series: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut list = PostingsBuilder::default();
    let series: Vec<u32> = series.into_iter().collect();
    series.iter().for_each(|series| list.push(*series));
    assert_eq!(list.count() as usize, series.len());
    let bytes = list.finish();
    let end = series.last().map_or(0, |last| last + 1);
    let again = decode(&bytes, end).expect("it was written so");
    assert!(again.iter().eq(series.iter().copied()));
    if end > 0 {
        assert!(decode(&bytes, end - 1).is_err(), "a series that there is not");
    }
    bytes
}

proptest! {
    #[test]
    fn any_list_comes_back(steps in prop::collection::vec(prop_oneof![Just(1), 1..5_u32, 1..100_000_u32], 0..2000)) {
        let mut series = 0;
        encoded(steps.into_iter().map(|step| { series += step; series - 1 }));
    }
}

#[test]
fn a_run_takes_a_few_bytes_and_every_other_series_a_bit() {
    assert!(encoded(1000..1_000_000).len() < 8);
    let length = encoded((0..1 << 20).step_by(2)).len();
    assert!(length < (1 << 17) + 1000, "{length}");
}

#[test]
fn damaged_lists_are_refused_or_others() {
    let mut chance = SplitMix64::new(7);
    for bytes in [encoded((0..3000).step_by(97)), encoded((0..1 << 16).step_by(2))] {
        for _ in 0..3000 {
            let mut damaged = bytes.clone();
            chance.damage(&mut damaged);
            if let Ok(list) = decode(&damaged, 1 << 16) {
                assert!(list.max() < Some(1 << 16));
            }
        }
    }
}
