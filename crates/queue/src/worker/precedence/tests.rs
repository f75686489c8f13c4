//! Which partition yields to which, and for how long.

use super::*;

const AT_MS: u64 = 1_000;

const WAIT_MAX_MS: u64 = 20;

/// Two partitions that have noted these ranks of queue 1.
fn pair(ranks: [i64; 2]) -> [Precedence; 2] {
    let shared = Arc::new(SharedRanks::new(WAIT_MAX_MS));
    shared.start_comparing(1);
    let mut pair = [0, 1].map(|partition| Precedence::new(partition, shared.clone()));
    for (one, rank) in pair.iter_mut().zip(ranks) {
        one.published_ranks.insert(1, rank);
        shared.publish_rank(1, one.partition, Some(rank));
    }
    pair
}

#[test]
fn the_lower_rank_yields_until_the_higher_one_has_fallen() {
    let [mut low, mut high] = pair([5, 9]);
    let nothing = Allowance::Nothing { until_ms: AT_MS + WAIT_MAX_MS };
    assert_eq!(low.compare_allowance(1, 5, AT_MS), nothing);
    assert_eq!(high.compare_allowance(1, 9, AT_MS), Allowance::AtLeast(5));
    let freed = high.shared.publish_rank(1, 1, Some(5));
    assert_eq!(freed, BTreeSet::from([0]));
    assert_eq!(low.compare_allowance(1, 5, AT_MS + 1), Allowance::AtLeast(5));
}

#[test]
fn equal_ranks_go_side_by_side() {
    let [mut one, mut other] = pair([5, 5]);
    assert_eq!(one.compare_allowance(1, 5, AT_MS), Allowance::AtLeast(5));
    assert_eq!(other.compare_allowance(1, 5, AT_MS), Allowance::AtLeast(5));
}

#[test]
fn a_partition_that_makes_no_progress_delays_the_others_for_a_bounded_time() {
    let [mut low, _stuck] = pair([5, 9]);
    let mut yielded = 0;
    for at_ms in AT_MS..AT_MS + 1_000 {
        match low.compare_allowance(1, 5, at_ms) {
            Allowance::Nothing { .. } => yielded += 1,
            Allowance::AtLeast(rank) => {
                assert_eq!((rank, yielded), (5, WAIT_MAX_MS));
                yielded = 0;
            }
        }
    }
}

#[test]
fn a_partition_that_withdraws_holds_up_no_other() {
    let [mut low, mut high] = pair([5, 9]);
    low.compare_allowance(1, 5, AT_MS);
    let freed = high.withdraw_ranks();
    assert_eq!(freed, [(PartitionSet::Listed(BTreeSet::from([0])), 1)]);
    assert_eq!(low.compare_allowance(1, 5, AT_MS), Allowance::AtLeast(i64::MIN));
    low.withdraw_ranks();
    assert!(!low.shared.is_compared(1));
}

#[test]
fn a_partition_whose_rank_falls_while_it_hands_out_yields() {
    let [mut falling, _other] = pair([9, 7]);
    assert_eq!(falling.compare_allowance(1, 9, AT_MS), Allowance::AtLeast(7));
    // The 9 is claimed but not handed over yet: it is still noted.
    let nothing = Allowance::Nothing { until_ms: AT_MS + WAIT_MAX_MS };
    assert_eq!(falling.compare_allowance(1, 5, AT_MS), nothing);
}
