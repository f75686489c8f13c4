//! Credits when several partitions take them at a time.

use std::sync::Arc;

use super::*;
use crate::error::QueueError;
use crate::model::{AttemptEnd, Lease, TaskId};
use crate::worker::sinks::{ReportSink, TaskAssignment};

struct DiscardingWorkSink;

impl ReportSink for DiscardingWorkSink {
    fn deliver_outcomes(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for DiscardingWorkSink {
    fn deliver_tasks(&self, _: &mut dyn Iterator<Item = TaskAssignment<'_>>) {}

    fn notify_lost_lease(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn notify_end(&self, _: QueueError) {}
}

fn session(credits: u32) -> WorkSession {
    let session = WorkSession::new("worker", vec![(1, 1_000)], Arc::new(DiscardingWorkSink), 2);
    session.add_credits(credits);
    session
}

#[test]
fn what_is_not_used_comes_back() {
    let session = session(5);
    let room = session.take_credits(4);
    assert_eq!((room.credits, session.take_credits(9).credits), (4, 1));
    session.return_credits(&room, 3);
    assert_eq!(session.take_credits(9).credits, 3);
    assert_eq!(session.take_credits(9).credits, 0);
}

#[test]
fn what_is_held_during_a_drain_does_not_come_back() {
    let session = session(5);
    let room = session.take_credits(3);
    session.drain();
    assert_eq!(session.return_credits(&room, 3), [] as [usize; 0]);
    assert!(!session.has_credits());
    session.add_credits(2);
    assert_eq!(session.take_credits(9).credits, 2);
}

/// A partition that finds no room while another one holds all of it is told when it comes back.
#[test]
fn who_found_no_room_is_told_of_what_comes_back() {
    let session = session(5);
    assert!(session.register_with(0) && session.register_with(1));
    let room = session.take_credits(5);
    assert_eq!(session.take_credits(5).credits, 0);
    session.unregister_from(1);
    assert_eq!(session.return_credits(&room, 4), [1]);
    assert_eq!(session.return_credits(&room, 1), [] as [usize; 0]);
}

#[test]
fn a_session_of_one_partition_is_told_to_no_other() {
    let session = session(0).clone_for_claim(2);
    session.add_credits(5);
    assert!(session.register_with(0));
    let room = session.take_credits(5);
    assert_eq!(session.return_credits(&room, 5), [] as [usize; 0]);
}
