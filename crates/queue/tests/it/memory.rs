//! What a pending task costs, as the operating system sees it.

use std::process::Command as Program;

use egret_queue::core::command::Enqueue;
use egret_queue::core::state::State;
use egret_queue::model::QueueSettings;

const TASKS: u64 = 1_000_000;

/// The limit of the design, in bytes a task.
const BYTES_MAX: u64 = 120;

const CHILD: &str = "EGRET_TEST_QUEUE_MEMORY";

/// Memory of this process that is not shared with files, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes: u64 = line
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .expect("it is told")
        .parse()
        .expect("a number");
    kilobytes << 10
}

/// Not a test of its own: a process that does nothing else, so that its memory is that of its
/// tasks.
#[test]
fn child_with_a_million_tasks() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let mut state = State::default();
    state.set_clock(1_790_000_000_000, 1);
    state.put_queue(1, "t", "q", &QueueSettings::default());
    let before = resident_bytes();
    for seq in 1..=TASKS {
        let task = Enqueue {
            queue: 1,
            shard: (seq % 4_096) as u16,
            priority: (seq % 10) as u8,
            run_at_ms: if seq % 4 == 0 { 1_790_000_000_000 + seq } else { 0 },
            tags: b"b\x03red",
            ..Enqueue::default()
        };
        state.enqueue(seq, &task).expect("the queue takes it in");
    }
    println!("{}", (resident_bytes() - before) / TASKS);
    assert_eq!(state.len() as u64, TASKS);
}

#[test]
fn a_pending_task_costs_at_most_120_bytes() {
    let program = std::env::current_exe().expect("a test has a program");
    let output = Program::new(program)
        .args(["memory::child_with_a_million_tasks", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("it can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes = text
        .lines()
        .find_map(|line| line.parse::<u64>().ok())
        .unwrap_or_else(|| panic!("it does not tell: {text}"));
    assert!(bytes <= BYTES_MAX, "{bytes} bytes a task");
    println!("{bytes} bytes a task");
}
