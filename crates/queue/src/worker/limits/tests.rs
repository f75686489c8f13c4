//! Permits over several partitions.

use super::*;

#[test]
fn concurrency_holds_over_partitions_and_frees_the_one_that_waits() {
    let (limits, settings) =
        (Limits::default(), QueueSettings { concurrency: 3, ..QueueSettings::default() });
    let take = |partition, wanted| limits.acquire(1, partition, wanted, &settings, 1).count;
    assert_eq!((take(0, 2), take(1, 5), take(1, 1)), (2, 1, 0));
    assert_eq!(limits.set_leased(1, 0, 2), BTreeSet::new());
    assert_eq!(limits.set_leased(1, 0, 1), BTreeSet::from([1]));
    assert_eq!((take(1, 5), take(0, 1)), (1, 0));
}

#[test]
fn a_rate_is_kept_and_a_pause_gives_a_burst() {
    let (limits, settings) = (
        Limits::default(),
        QueueSettings { rate_per_second: 10.0, rate_burst: 4, ..QueueSettings::default() },
    );
    let take = |now_ms| limits.acquire(1, 0, 100, &settings, now_ms);
    assert_eq!(take(1_000).count, 1);
    let refused = take(1_000);
    assert_eq!(refused, Permits { count: 0, retry_ms: Some(1_100) });
    assert_eq!(take(1_100).count, 1);
    assert_eq!(take(10_000).count, 4);
    limits.release_tokens(1, 3);
    assert_eq!(take(10_000).count, 3);
    let handed: u32 = (0..10_000).map(|ms| take(20_000 + ms).count).sum();
    assert_eq!(handed, 4 + 99);
}
