//! Which partitions count as stopped.

use egret_base::Limit;

use super::*;

#[test]
fn only_a_failed_partition_counts_as_stopped() {
    let mut sum = Summary::default();
    let part = Summary { queues: 3, oldest_ready_ms: 7, ..Summary::default() };
    sum.add_partition(Ok(part)).unwrap();
    let reason = "its log is damaged".to_owned();
    for error in [
        QueueError::PartitionFailed { partition: 1 },
        QueueError::PartitionUnusable { partition: 2, reason },
    ] {
        sum.add_partition(Err(error)).unwrap();
    }
    let full = Limit::new("queue.inbox", 1).check(2).unwrap_err();
    for error in [QueueError::Limit(full), QueueError::Stopping] {
        let message = error.to_string();
        let returned = sum.add_partition(Err(error)).unwrap_err();
        assert_eq!(returned.to_string(), message);
    }
    assert_eq!((sum.queues, sum.oldest_ready_ms, sum.partitions_stopped), (3, 7, 2));
}
