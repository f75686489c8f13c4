//! Which branch is stopped when room runs out.

use egret_base::Timestamp;
use egret_base::settings::ByteSize;

use super::*;

fn id(number: i64) -> BranchId {
    BranchId::new(Timestamp::from_micros(number * 1_000), [0; 10])
}

fn sizes(sizes: &[(i64, u64)]) -> HashMap<BranchId, u64> {
    sizes.iter().map(|(number, mib)| (id(*number), mib << 20)).collect()
}

#[test]
fn the_branch_that_grows_is_stopped_and_no_neighbour() {
    let before = sizes(&[(1, 100), (2, 5_000), (3, 40)]);
    let after = sizes(&[(1, 900), (2, 5_000), (3, 45)]);
    assert_eq!(fastest_growing(&before, &after), Some(id(1)));
    // With that one gone, the next one that grows.
    let after = sizes(&[(2, 5_000), (3, 45)]);
    assert_eq!(fastest_growing(&before, &after), Some(id(3)));
}

#[test]
fn a_full_volume_stops_nothing_that_does_not_grow() {
    let before = sizes(&[(1, 100), (2, 5_000)]);
    assert_eq!(fastest_growing(&before, &before), None);
    // Of one that is new it is not known how fast it grows.
    let after = sizes(&[(1, 90), (2, 5_000), (3, 700)]);
    assert_eq!(fastest_growing(&before, &after), None);
}

#[test]
fn room_that_falls_fast_is_short_early() {
    let config = BranchesConfig { free_critical: ByteSize::mib(256), ..BranchesConfig::default() };
    let short = |free: ByteSize, falling: ByteSize| {
        Room { free: free.bytes(), falling_per_s: falling.bytes() }.is_short(&config)
    };
    assert!(!short(ByteSize::mib(300), ByteSize::mib(0)));
    assert!(short(ByteSize::mib(200), ByteSize::mib(0)));
    assert!(short(ByteSize::gib(1), ByteSize::mib(500)));
    assert!(!short(ByteSize::gib(2), ByteSize::mib(500)));
}

/// The rates of readings of the free room in MiB, 50 ms apart, in MiB a second.
fn rates(free_mib: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut trend = Trend::default();
    let readings = free_mib.into_iter().enumerate();
    readings
        .map(|(number, free)| {
            trend.add(Duration::from_millis(50) * number as u32, free << 20) >> 20
        })
        .collect()
}

#[test]
fn a_burst_is_no_rate() {
    // 100 MiB within 50 ms are 2,000 MiB a second at that moment only.
    let rates = rates([1_000, 900].into_iter().chain(std::iter::repeat_n(900, 20)));
    assert_eq!(rates.iter().max(), Some(&200));
    assert_eq!(rates.last(), Some(&0));
}

#[test]
fn a_steady_fall_is_its_rate_after_the_window() {
    let rates = rates((0..30).map(|number| 2_000 - 10 * number));
    assert_eq!(rates[0], 0);
    assert!(rates[11..].iter().all(|rate| *rate == 200), "{rates:?}");
}
