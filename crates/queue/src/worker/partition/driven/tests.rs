//! What a partition promises of a loss of power, and of workers beside one another.

use std::sync::atomic::{AtomicUsize, Ordering};

use egret_base::{ManualClock, SeededEntropy, Timestamp};
use egret_log::simulated::SplitMix64;
use egret_log::{Durability, Housekeeping};

mod turns;

use super::*;
use crate::model::{AttemptEnd, TaskId};
use crate::worker::sinks::{EnqueueReceipt, TaskAssignment};

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
            DrivenPartition::open(disk.clone(), config, clock, entropy, 0).unwrap()
        };
        let mut driven = open();
        driven.put_queue(1, &QueueSettings::default()).unwrap();
        if is_asked {
            driven.make_durable().unwrap();
        }
        // Dropping it first would sync what is not durable.
        disk.lose_power(&mut SplitMix64::new(*seed));
        drop(driven);
        open().state().queue_by_id(1).is_none()
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
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        assert!(outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

impl ReportSink for Counter {
    fn deliver_outcomes(&self, _: &[(u64, Result<(), QueueError>)]) {}
}

impl WorkSink for Counter {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        self.0.fetch_add(tasks.count(), Ordering::Relaxed);
    }

    fn notify_lost_lease(&self, _: TaskId, _: Lease, _: AttemptEnd) {}

    fn notify_end(&self, _: QueueError) {}
}

const OLD: u32 = 1;
const NEW: u32 = 2;

/// A partition with five hundred tasks of one queue that only the disk has.
fn with_old_tasks() -> (SimulatedDisk, DrivenPartition) {
    let config = LogConfig {
        segment_bytes: 1 << 20,
        first_segment_bytes: 1 << 20,
        batch_bytes_max: 256 << 10,
        cache_bytes: 64 << 10,
        chunk_cache_bytes: 64 << 10,
        open_segments_max: 0,
        housekeeping: Housekeeping::Owner,
        ..LogConfig::default()
    };
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1)));
    let entropy = Arc::new(SeededEntropy::new(1));
    let disk = SimulatedDisk::new(64 << 20);
    let mut driven = DrivenPartition::open(disk.clone(), config, clock, entropy, 0).unwrap();
    for queue in [OLD, NEW] {
        driven.put_queue(queue, &QueueSettings::default()).unwrap();
    }
    for _ in 0..50 {
        enqueue(&mut driven, OLD, 10);
        driven.housekeep();
    }
    (disk, driven)
}

fn enqueue(driven: &mut DrivenPartition, queue: u32, count: usize) {
    let task = Enqueue { queue, content: &[0; 8 << 10], ..Enqueue::default() };
    let tasks = vec![(0, task); count];
    driven.enqueue(&tasks, Arc::new(Counter::default()));
    driven.run_turn().unwrap();
}

#[test]
fn a_worker_whose_tasks_are_on_disk_does_not_hold_up_another() {
    let (_, mut driven) = with_old_tasks();
    enqueue(&mut driven, NEW, 2);
    let (old, new) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let slow = driven.new_worker(OLD, 60_000, old.clone());
    let quick = driven.new_worker(NEW, 60_000, new.clone());
    driven.add_credits(&slow, 500);
    driven.add_credits(&quick, 2);
    let fetched = |driven: &DrivenPartition| driven.partition.reader.fetched_bytes();
    let mut turns = 0;
    loop {
        let (had, before) = (old.count(), fetched(&driven));
        driven.run_turn().unwrap();
        turns += 1;
        assert_eq!(new.count(), 2);
        assert!(old.count() > had);
        // Twice the bound, for tasks of this turn and for those that wait, and one read more of
        // each.
        let cost = fetched(&driven) - before;
        assert!(cost < 4 << 20, "{cost} bytes were fetched in turn {turns}");
        if !driven.partition.dispatcher.has_more() {
            break;
        }
    }
    assert_eq!(old.count(), 500);
    assert!(turns > 1, "{turns}");
}

#[test]
fn many_workers_whose_tasks_are_on_disk_share_what_a_turn_fetches() {
    let (_, mut driven) = with_old_tasks();
    let old = Arc::new(Counter::default());
    let workers: Vec<_> = (0..50).map(|_| driven.new_worker(OLD, 60_000, old.clone())).collect();
    for worker in &workers {
        driven.add_credits(worker, 10);
    }
    loop {
        let (had, before) = (old.count(), driven.partition.reader.fetched_bytes());
        driven.run_turn().unwrap();
        assert!(old.count() > had);
        let cost = driven.partition.reader.fetched_bytes() - before;
        assert!(cost < 4 << 20, "{cost} bytes were fetched in a turn");
        if !driven.partition.dispatcher.has_more() {
            break;
        }
    }
    assert_eq!(old.count(), 500);
}

#[test]
fn a_worker_that_has_no_room_any_more_gets_nothing_after_it_was_told() {
    let (_, mut driven) = with_old_tasks();
    let got = Arc::new(Counter::default());
    let worker = driven.new_worker(OLD, 60_000, got.clone());
    driven.add_credits(&worker, 500);
    driven.run_turn().unwrap();
    assert!(driven.partition.dispatcher.has_more());
    let told = Arc::new(AtomicUsize::new(0));
    let heard = told.clone();
    let answer = Box::new(move |_| heard.store(1, Ordering::Relaxed));
    worker.0.drain();
    driven.push(Submission::Drain(worker.0.clone(), answer));
    driven.run_turn().unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let had = got.count();
    assert!((1..500).contains(&had), "{had}");
    for _ in 0..10 {
        driven.run_turn().unwrap();
    }
    assert_eq!(got.count(), had);
    // What was taken back is for another one.
    let rest = Arc::new(Counter::default());
    let other = driven.new_worker(OLD, 60_000, rest.clone());
    driven.add_credits(&other, 500);
    while {
        driven.run_turn().unwrap();
        driven.partition.dispatcher.has_more()
    } {}
    assert_eq!(rest.count(), 500 - had);
}

#[test]
fn what_cannot_be_read_for_want_of_files_is_pushed_when_it_can_be() {
    let (disk, mut driven) = with_old_tasks();
    let got = Arc::new(Counter::default());
    let worker = driven.new_worker(OLD, 60_000, got.clone());
    disk.limit_open_files(0);
    driven.add_credits(&worker, 400);
    for _ in 0..10 {
        driven.run_turn().unwrap();
    }
    let had = got.count();
    assert!(had < 400, "{had}");
    disk.limit_open_files(usize::MAX);
    while {
        driven.run_turn().unwrap();
        driven.partition.dispatcher.has_more()
    } {}
    assert_eq!(got.count(), 400);
}
