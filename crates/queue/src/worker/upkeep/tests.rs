//! Which segments are compacted, and together with which.

use super::*;

const MEGABYTE: u64 = 1 << 20;

/// Segments of `file_bytes` with a thousand sequence numbers each, of which `records` were kept and
/// `count` are in use.
fn segments(number: u64, file_bytes: u64, records: u64, count: u64) -> Vec<LiveRecords> {
    let segment = |at: u64| {
        let mut one = LiveRecords::new(SegmentInfo {
            first: Seq(at * 1_000 + 1),
            last: Seq(at * 1_000 + 1_000),
            file_bytes,
            used_bytes: Some(file_bytes),
            records,
            is_sealed: true,
            is_compacted: records < 1_000,
        });
        (0..count).for_each(|at| one.mark(one.segment.first.plus(at)));
        one
    };
    (0..number).map(segment).collect()
}

fn run_lengths(segments: Vec<LiveRecords>) -> Vec<usize> {
    let runs = plan_runs(segments.into_iter());
    runs.iter().map(Vec::len).collect()
}

#[test]
fn what_is_left_of_a_run_fits_into_one_segment() {
    assert_eq!(run_lengths(segments(25, 16 * MEGABYTE, 1_000, 100)), [10, 10, 5]);
    assert_eq!(run_lengths(segments(3, 16 * MEGABYTE, 1_000, 499)), [2, 1]);
}

#[test]
fn a_compacted_segment_is_left_alone_until_it_is_sparse_again() {
    assert!(run_lengths(segments(10, 16 * MEGABYTE, 100, 100)).is_empty());
    // As many bytes as before are left of each, not a tenth.
    assert_eq!(run_lengths(segments(5, 16 * MEGABYTE, 100, 40)), [2, 2, 1]);
}

#[test]
fn a_run_ends_where_a_segment_is_in_use_and_where_much_is_to_be_read() {
    let mut all = segments(7, 16 * MEGABYTE, 1_000, 10);
    all[3] = segments(4, 16 * MEGABYTE, 1_000, 900).remove(3);
    assert_eq!(run_lengths(all), [3, 3]);
    assert_eq!(run_lengths(segments(20, 16 * MEGABYTE, 1_000, 0)), [16, 4]);
    assert_eq!(run_lengths(segments(2, 300 * MEGABYTE, 1_000, 0)), [1, 1]);
}
