//! Clocks that are set back, and messages between tasks that are too many.

use egret_queue::model::{TaskId, TaskState};

use super::*;

/// Tasks that wait for others are taken in while there is room for what partitions say of them.
#[test]
fn too_many_messages_between_tasks_are_refused_by_name() {
    let mut all = CrashSimulation::new(5);
    all.reopen();
    let after: Vec<u8> =
        (1..=50).flat_map(|number| TaskId::new(1, 0, 0, 1 << 40 | number).to_bytes()).collect();
    let task = Enqueue { queue: QUEUE, after: &after, ..Enqueue::default() };
    let tasks: Vec<_> = (0..4).map(|number| (number, task.clone())).collect();
    let plain = Enqueue { queue: QUEUE, ..Enqueue::default() };
    let ears = all.sink.clone();
    all.driven().enqueue(&tasks, ears.clone());
    all.driven().enqueue(&[(9, plain)], ears.clone());
    all.driven().run_turn().expect("the disk works");
    let heard = ears.take();
    let refused = heard.iter().filter(|heard| {
        matches!(heard, SinkEvent::Enqueued(_, Err(QueueError::Limit(limit)))
            if limit.name == "queue.chain_messages_max")
    });
    assert_eq!((refused.count(), heard.len()), (2, 5), "{heard:?}");
    assert!(matches!(heard[4], SinkEvent::Enqueued(9, Ok(_))));
}

/// The wall clock is set back by an hour: leases end and delays pass as if it had not been.
#[test]
fn a_clock_that_goes_back_stops_no_timer_and_lets_none_run_early() {
    let mut all = CrashSimulation::new(6);
    all.reopen();
    all.enqueue();
    let worker = all.worker.as_ref().expect("it was attached");
    let driven = all.driven.as_mut().expect("it is open");
    driven.add_credits(worker, 1);
    all.turn();
    assert_eq!(all.history.leases().len(), 1);
    let lost_after = |all: &mut CrashSimulation, passed_ms: u64| {
        all.clock.advance(Duration::from_millis(passed_ms));
        all.driven().run_turn().expect("the disk works");
        let heard = all.sink.take();
        heard.iter().any(|heard| matches!(heard, SinkEvent::Lost(_)))
    };
    // A lease is for 200 ms.
    all.clock.set_back(Duration::from_secs(3_600));
    assert!(!lost_after(&mut all, 190));
    assert!(lost_after(&mut all, 60));
    // So is one that was given before the start: time goes on from what the log knows.
    let driven = all.driven.as_mut().expect("it is open");
    let worker = all.worker.as_ref().expect("it was attached");
    driven.add_credits(worker, 1);
    all.turn();
    let before_ms = all.driven().state().now_ms();
    all.crash(false);
    all.clock.set_back(Duration::from_secs(3_600));
    all.reopen();
    let leased = |all: &mut CrashSimulation| {
        let queue = all.driven().state().queue_by_id(QUEUE).expect("it was put");
        queue.counts()[TaskState::Leased as usize]
    };
    assert_eq!(leased(&mut all), 1);
    for _ in 0..30 {
        all.clock.advance(Duration::from_millis(10));
        all.turn();
    }
    assert_eq!(leased(&mut all), 0);
    // The partition's own time has come back with the clock.
    let back_ms = before_ms - all.driven().state().now_ms();
    assert!((3_599_700..=3_599_800).contains(&back_ms), "{back_ms}");
}
