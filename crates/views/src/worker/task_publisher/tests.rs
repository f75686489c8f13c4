//! What is counted of a batch of which some tasks are refused.

use egret_base::Kind;

use super::*;

#[test]
fn a_task_behind_a_refused_one_is_counted_when_it_is_enqueued_again() {
    let accepted = |replayed: bool| Ok(TaskReceipt { id: Default::default(), replayed });
    let refused = Err(TaskRejection {
        code: "queue_draining",
        kind: Kind::Conflict,
        retryable: true,
        message: "the queue is draining".to_owned(),
    });
    let tasks = Family::default();
    count_outcomes(&tasks, &[accepted(false), refused, accepted(false)]);
    count_outcomes(&tasks, &[accepted(false), accepted(true)]);
    let count = |outcome| tasks.get_or_create(&OutcomeLabels { outcome }).get();
    assert_eq!((count("taken"), count("refused")), (3, 1));
}
