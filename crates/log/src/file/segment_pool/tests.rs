//! Failures of housekeeping last until what failed succeeds.

use super::*;
use crate::simulated::SimulatedDisk;

#[test]
fn a_task_that_succeeds_leaves_the_failure_of_a_spare_segment() {
    let disk = SimulatedDisk::new(4 << 10);
    let config = LogConfig { segment_bytes: 8 << 10, spare_segments: 1, ..LogConfig::default() };
    let pool = SegmentPool::open(disk, "log".into(), &config, &[]).expect("the disk works");
    let is_full = |error: Option<LogError>| matches!(error, Some(LogError::Full { .. }));
    assert!(is_full(pool.reserve(1).err()));
    pool.submit(Task::Discard("absent".to_owned()));
    assert!(pool.step().expect("there is nothing to remove"));
    assert!(is_full(pool.failure()));
    assert!(is_full(pool.reserve(1).err()));
    assert!(is_full(pool.step().err()));
}
