//! How long a snapshot holds up its partition: a million tasks with tags of their own, a million
//! that wait for others, and a million places that are free again.
//!
//! `cargo run --release --example snapshot_pause -p egret-queue`

use std::time::{Duration, Instant};

use egret_queue::core::command::Enqueue;
use egret_queue::core::state::State;
use egret_queue::model::{QueueSettings, TaskId};

const TASKS: u64 = 1_000_000;

fn busy() -> State {
    let mut state = State::default();
    state.set_clock(1_790_000_000_000, 1);
    state.begin_epoch(1, 1, 0);
    state.put_queue(1, "tenant", "queue", &QueueSettings::default());
    let elsewhere = TaskId::new(1_790_000_000_000, 1, 2, 3).to_bytes();
    let mut enqueue = |seq: u64, tags: &[u8], after: &[u8]| {
        let task = Enqueue { queue: 1, tags, after, ..Enqueue::default() };
        let made = state.enqueue(seq, &task);
        assert!(made.is_ok(), "the queue takes everything in");
    };
    for number in 0..TASKS {
        let name = format!("order-{number}");
        let mut tags = vec![b'b', name.len() as u8];
        tags.extend_from_slice(name.as_bytes());
        enqueue(number, &tags, b"");
    }
    (0..TASKS).for_each(|number| enqueue(TASKS + number, b"", &elsewhere));
    (0..TASKS).for_each(|number| enqueue(2 * TASKS + number, b"", b""));
    for number in 2 * TASKS + 1..=3 * TASKS {
        let deleted = state.delete(number);
        assert!(deleted.is_ok(), "no other thread holds it");
    }
    state
}

fn main() {
    let mut state = busy();
    let mut longest = Duration::ZERO;
    for round in 0..5 {
        let started = Instant::now();
        let image = state.take_snapshot();
        let pause = started.elapsed();
        longest = longest.max(pause);
        // The first changes afterwards copy the pages that they touch.
        let started = Instant::now();
        let mut claimed = Vec::new();
        state.claim(1, "worker", 1_000, 60_000, &mut claimed);
        println!("round {round}: pause {pause:?}, then 1,000 claims {:?}", started.elapsed());
        drop(image);
    }
    println!("longest pause: {longest:?}");
}
