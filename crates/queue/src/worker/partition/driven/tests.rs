//! What a partition promises of a loss of power, and of workers beside one another.

use std::sync::atomic::{AtomicUsize, Ordering};

use egret_base::{ManualClock, SeededEntropy, Timestamp};
use egret_log::simulated::Chance;
use egret_log::{Durability, Housekeeping};

use super::*;
use crate::api::sink::{Assigned, Enqueued};
use crate::model::{AttemptEnd, TaskId};

/// In how many of fifty runs a queue is lost with the power.
fn losses(durability: Durability, is_asked: bool) -> usize {
    let lost = |seed: &u64| {
        let disk = SimulatedDisk::new(1 << 20);
        let config = LogConfig {
            durability,
            segment_bytes: 64 << 10,
            first_segment_bytes: 8 << 10,
            batch_bytes_max: 32 << 10,
            housekeeping: Housekeeping::Owner,
            ..LogConfig::default()
        };
        let open = || {
            let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1)));
            let entropy = Arc::new(SeededEntropy::new(*seed));
            Driven::open(disk.clone(), config, clock, entropy, 0).unwrap()
        };
        let mut driven = open();
        driven.put_queue(1, &QueueSettings::default()).unwrap();
        if is_asked {
            driven.make_durable().unwrap();
        }
        drop(driven);
        disk.lose_power(&mut Chance::new(*seed));
        open().state().queue_with(1).is_none()
    };
    (0..50).filter(lost).count()
}

#[test]
fn what_was_asked_to_be_durable_survives_whatever_the_setting() {
    let hour = Durability::Interval(Duration::from_secs(3_600));
    assert_eq!(losses(Durability::Fsync, false), 0);
    for durability in [hour, Durability::None] {
        assert!(losses(durability, false) > 0);
        assert_eq!(losses(durability, true), 0);
    }
}

/// Counts the tasks that a worker gets.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Counter {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl ProduceSink for Counter {
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]) {
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

impl ReportSink for Counter {
    fn reported(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for Counter {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = Assigned<'_>>) {
        self.0.fetch_add(tasks.count(), Ordering::Relaxed);
    }

    fn lost(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn ended(&self, _: QueueError) {}
}

#[test]
fn a_worker_whose_tasks_are_on_disk_does_not_hold_up_another() {
    const OLD: u32 = 1;
    const NEW: u32 = 2;
    let config = LogConfig {
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        batch_bytes_max: 256 << 10,
        cache_bytes: 64 << 10,
        chunk_cache_bytes: 64 << 10,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    };
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1)));
    let entropy = Arc::new(SeededEntropy::new(1));
    let disk = SimulatedDisk::new(64 << 20);
    let mut driven = Driven::open(disk, config, clock, entropy, 0).unwrap();
    for queue in [OLD, NEW] {
        driven.put_queue(queue, &QueueSettings::default()).unwrap();
    }
    let content = [0; 8 << 10];
    let task = |queue| {
        let task = Enqueue {
            queue,
            content: &content,
            ..Enqueue::default()
        };
        (0, task)
    };
    for _ in 0..50 {
        driven.enqueue(&[(); 10].map(|()| task(OLD)), Arc::new(Counter::default()));
        driven.turn().unwrap();
        driven.housekeep();
    }
    driven.enqueue(&[task(NEW), task(NEW)], Arc::new(Counter::default()));
    driven.turn().unwrap();
    let (old, new) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let slow = driven.attach(OLD, 60_000, old.clone());
    let quick = driven.attach(NEW, 60_000, new.clone());
    driven.add_credits(&slow, 500);
    driven.add_credits(&quick, 2);
    let fetched = |driven: &Driven| driven.partition.reader.fetched_bytes();
    let mut turns = 0;
    loop {
        let (had, before) = (old.count(), fetched(&driven));
        driven.turn().unwrap();
        turns += 1;
        assert_eq!(new.count(), 2);
        assert!(old.count() > had);
        // One read more than the bound, which is of less than a segment.
        let cost = fetched(&driven) - before;
        assert!(cost < 2 << 20, "{cost} bytes were fetched in turn {turns}");
        if !driven.partition.dispatcher.has_more() {
            break;
        }
    }
    assert_eq!(old.count(), 500);
    assert!(turns > 3, "{turns}");
}
