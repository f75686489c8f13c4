//! The layout of records, byte by byte: what version 1 wrote must be read for ever. A new kind adds
//! lines to `tests/golden/records-v1.txt` (`UPDATE_EXPECT=1` writes it); none may change.

use std::collections::BTreeSet;
use std::fmt::Write;

use egret_log::Seq;
use egret_queue::Format;
use egret_queue::core::command::{Command, Defer, Enqueue, PutSchedule, TaskReport};
use egret_queue::core::state::{AllocationCounts, CALLBACK_QUEUE, State, TaskLoad, tenant_mark};
use egret_queue::model::{
    Backoff, Jitter, QueueSettings, Retention, RetryPolicy, TaskId, TaskOptions,
};
use egret_queue::testing::content::{self, Content, Private};
use egret_queue::testing::{record, snapshot};
use expect_test::expect_file;

const NOW_MS: u64 = 1_790_000_000_000;

fn report() -> TaskReport<'static> {
    TaskReport { number: 300, token: 3 << 40 | 7, content: b"{}" }
}

fn settings() -> QueueSettings {
    QueueSettings {
        max_attempts: 300,
        retry: RetryPolicy {
            backoff: Backoff::Linear,
            base_ms: 1,
            max_ms: 128,
            jitter: Jitter::Equal,
        },
        timeout_ms: 5_000,
        concurrency: 16,
        key_concurrency: 2,
        rate_per_second: 0.5,
        rate_burst: 3,
        cancelled: Retention { age_ms: 0, count: 9 },
        ..QueueSettings::default()
    }
}

/// A task with everything that a task can have.
fn task() -> Enqueue<'static> {
    Enqueue {
        queue: 200,
        shard: 0x0abc,
        priority: 9,
        run_at_ms: NOW_MS + 1,
        delay_ms: 0,
        key: 0x0102_0304 << 96 | 5,
        unique: Some((0xfedc << 64, 86_400_000)),
        origin: None,
        options: TaskOptions {
            max_attempts: Some(7),
            retry: Some(RetryPolicy::default()),
            timeout_ms: Some(1_000),
        },
        tags: b"b\x03red",
        callback: true,
        after: b"0123456789abcdefFEDCBA9876543210",
        content: b"\x00\x1a\x02hi",
    }
}

fn id(number: u64) -> TaskId {
    TaskId::new(NOW_MS, 0x0abc, 0x1234, number)
}

fn partition_commands() -> Vec<Command<'static>> {
    vec![
        Command::Clock { now_ms: NOW_MS, seed: 0x0123_4567_89ab_cdef },
        Command::Epoch { epoch: 3, instance: 0x1234, grace_ms: 10_000 },
        Command::Enqueue(Enqueue { queue: 1, ..Enqueue::default() }),
        Command::Enqueue(task()),
        Command::Enqueue(Enqueue { origin: Some((0xabcd << 64, 604_800_000)), ..task() }),
        Command::Claim { queue: 1, worker: "worker-1", count: 128, lease_ms: 30_000 },
        Command::Complete(report()),
        Command::Fail { report: report(), permanent: true },
        Command::Defer { report: report(), delay_ms: 200, mode: Defer::Nack },
        Command::Defer { report: report(), delay_ms: 0, mode: Defer::Snooze },
        Command::Defer { report: report(), delay_ms: 0, mode: Defer::Release },
        Command::Heartbeat { report: report(), lease_ms: 30_000 },
        Command::Advance { budget: 2_048 },
        Command::Await { task: id(1), waiting: id(2), tenant: 7 },
        Command::Resolve { waiting: id(2), task: id(1), completed: true },
        Command::Delivered { message: 400 },
    ]
}

fn admin_commands() -> Vec<Command<'static>> {
    let (tenant, name) = ("acme", "nightly");
    vec![
        Command::PutQueue { queue: 1, tenant, name: "mail", settings: Box::new(settings()) },
        Command::SetFlow { queue: 1, paused: true, draining: false },
        Command::DeleteQueue { queue: 300 },
        Command::Cancel { number: 300 },
        Command::Requeue { number: 300, key: 1 << 100 },
        Command::Delete { number: 300 },
        Command::Purge { queue: 1, states: 0b111_0000, count: 1_000 },
        Command::PutSchedule(PutSchedule {
            tenant,
            name,
            next_ms: NOW_MS,
            paused: false,
            task: Enqueue { run_at_ms: 0, unique: None, after: b"", ..task() },
        }),
        Command::DeleteSchedule { tenant, name },
        Command::PauseSchedule { tenant, name, paused: true, next_ms: NOW_MS },
        Command::Tick { tenant, name, tick_ms: NOW_MS, next_ms: NOW_MS + 60_000, tasks: 1 },
        Command::CompleteAttached(report()),
        Command::Chain { tasks: 2 },
        Command::Step { by_ms: -86_400_000 },
        Command::Enqueue(Enqueue { run_at_ms: 0, delay_ms: 60_000, ..task() }),
    ]
}

fn name(command: &Command<'_>) -> String {
    let text = format!("{command:?}");
    let end = text.find(|c: char| !c.is_alphanumeric());
    text[..end.unwrap_or(text.len())].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text grows");
        text
    })
}

#[test]
fn records_are_written_as_ever() {
    let mut text = String::new();
    let mut kinds = BTreeSet::new();
    for command in partition_commands().into_iter().chain(admin_commands()) {
        let mut bytes = Vec::new();
        record::encode(&command, &mut bytes);
        kinds.insert(bytes[0]);
        assert_eq!(record::decode(&bytes), Ok(command.clone()));
        writeln!(text, "{} {}", name(&command), hex(&bytes)).expect("text grows");
    }
    assert!(kinds.iter().copied().eq(1..=26), "a kind has no golden record");
    assert!(record::decode(&[27]).is_err(), "a new kind has no golden record");
    expect_file!["../golden/records-v1.txt"].assert_eq(&text);
}

#[test]
fn contents_are_written_as_ever() {
    let whole = Content {
        payload: b"{\"n\":1}",
        format: Format::Json,
        ordering_key: "customer-7",
        metadata: [("a", "1"), ("b", "")].into(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate: "egret=1",
        private: Private {
            callback_url: "https://example.org/done",
            unique_key: "order-1",
            schedule: b"described",
        },
    };
    let mut text = String::new();
    for content in [Content::default(), whole] {
        let mut bytes = Vec::new();
        content::encode(&mut bytes, &content);
        assert_eq!(content::decode(&bytes), Ok(content));
        writeln!(text, "{}", hex(&bytes)).expect("text grows");
    }
    expect_file!["../golden/contents-v1.txt"].assert_eq(&text);
}

/// A partition whose records are counted.
#[derive(Default)]
struct SequencedState {
    state: State,
    seq: u64,
}

impl SequencedState {
    fn run(&mut self, command: &Command<'_>) {
        self.seq += 1;
        let applied = self.state.apply(self.seq, command);
        applied.expect("nothing to refuse");
    }

    /// Queues, and tasks of every kind.
    fn fill(&mut self) {
        self.run(&Command::Clock { now_ms: NOW_MS, seed: 7 });
        self.run(&Command::Epoch { epoch: 3, instance: 0x1234, grace_ms: 10_000 });
        for queue in [CALLBACK_QUEUE, 1, 200] {
            self.run(&Command::PutQueue {
                queue,
                tenant: "acme",
                name: "mail",
                settings: Box::new(settings()),
            });
        }
        for _ in 0..5 {
            self.run(&Command::Enqueue(Enqueue { queue: 1, callback: true, ..Enqueue::default() }));
        }
        self.run(&Command::Enqueue(task()));
        self.run(&Command::Enqueue(Enqueue {
            after: b"",
            origin: Some((0xabcd << 64, 604_800_000)),
            unique: None,
            ..task()
        }));
    }

    /// Outcomes, a task that waits for another one, and a schedule.
    fn work(&mut self) {
        let (queue, worker, count, lease_ms) = (1, "worker-1", 4, 30_000);
        let mut claimed = Vec::new();
        let mut same = self.state.clone();
        same.claim(queue, worker, count, lease_ms, &mut claimed);
        self.run(&Command::Claim { queue, worker, count, lease_ms });
        let held = |at: usize| TaskReport {
            number: claimed[at].task.number,
            token: claimed[at].token,
            content: b"\0r",
        };
        self.run(&Command::Complete(held(0)));
        self.run(&Command::CompleteAttached(held(1)));
        self.run(&Command::Fail { report: held(2), permanent: false });
        self.run(&Command::Await {
            task: TaskId::new(NOW_MS, 0, 0x1234, 4),
            waiting: id(77),
            tenant: tenant_mark("acme"),
        });
        let schedules = admin_commands().into_iter();
        for put in schedules.filter(|one| matches!(one, Command::PutSchedule(_))) {
            self.run(&put);
        }
    }
}

impl SequencedState {
    /// Tasks of a schedule that is deleted, and of one that is there.
    fn share(&mut self) {
        let schedules =
            admin_commands().into_iter().filter(|one| matches!(one, Command::PutSchedule(_)));
        let ticks = admin_commands().into_iter().filter(|one| matches!(one, Command::Tick { .. }));
        for command in ticks.clone().chain(schedules).chain(ticks) {
            self.run(&command);
        }
    }
}

/// The state of a snapshot of a former version, with what [`SequencedState::fill`] and
/// [`SequencedState::work`] make.
fn restore(text: &str) -> State {
    let mut partition = SequencedState::default();
    partition.fill();
    partition.work();
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = pairs.map(byte).collect();
    let (seq, image) = snapshot::read_from(&*bytes, "memory".into()).expect("it is whole");
    let state = State::restore(image);
    let shared_records = 0;
    let census = AllocationCounts { shared_records, ..partition.state.allocation_counts() };
    assert_eq!((seq, state.allocation_counts()), (Seq(99), census));
    state
}

/// The first snapshots did not say how many bytes tasks have; what they hold has none.
#[test]
fn snapshots_without_bytes_are_read() {
    let mut state = restore(include_str!("../golden/snapshot-v1-without-bytes.txt"));
    assert_eq!((state.total_load().bytes, state.tenant_load("acme").bytes), (0, 0));
    // What is new counts, and what goes takes nothing with it that was not counted.
    let numbers: Vec<u64> = (1..=7).collect();
    let new = Enqueue { queue: 1, content: b"0123456789", ..Enqueue::default() };
    state.enqueue(100, &new).expect("the queue is there");
    for number in numbers {
        let _ = state.cancel(number);
        let _ = state.delete(number);
    }
    assert_eq!((state.total_load().bytes, state.tenant_load("acme").bytes), (10, 10));
}

/// Later ones did not say which records are shared: callbacks and tasks of schedules that they hold
/// are of no tenant, and what comes after is counted all the same.
#[test]
fn snapshots_without_shared_records_are_read() {
    let mut state = restore(include_str!("../golden/snapshot-v1-without-shared.txt"));
    // Of seven tasks two have ended, and each of the others has a callback.
    let before = state.tenant_load("acme");
    assert_eq!((state.total_load(), before.tasks), (before, 9 + 5));
    // The schedule of before shares its record from now on.
    let ticked = state.tick("acme", "nightly", NOW_MS, NOW_MS + 1, 1);
    assert_eq!(ticked, Ok(1));
    let tasks = before.tasks + 2;
    assert_eq!(state.total_load(), TaskLoad { tasks, ..before });
    state.delete_schedule("acme", "nightly").unwrap();
    assert_eq!(state.total_load(), TaskLoad { tasks, ..before });
    // Callbacks come after the tasks that they tell of.
    for number in 1..=20 {
        let _ = state.cancel(number);
        let _ = state.delete(number);
    }
    let none = TaskLoad::default();
    assert_eq!((state.total_load(), state.tenant_load("acme")), (none, none));
    assert_eq!(state.shared_records().count(), 0);
}

#[test]
fn snapshots_are_written_as_ever() {
    let mut partition = SequencedState::default();
    partition.fill();
    partition.work();
    partition.share();
    let mut state = partition.state;
    let census = state.allocation_counts();
    let mut bytes = Vec::new();
    let written = snapshot::write_to(&mut bytes, Seq(99), &state.take_snapshot(), &mut |_| {});
    written.expect("memory is large");
    let mut text = String::new();
    for line in bytes.chunks(64) {
        writeln!(text, "{}", hex(line)).expect("text grows");
    }
    expect_file!["../golden/snapshot-v1.txt"].assert_eq(&text);
    let (seq, image) = snapshot::read_from(&*bytes, "memory".into()).expect("it is whole");
    let restored = State::restore(image);
    assert_eq!((seq, restored.allocation_counts()), (Seq(99), census));
    assert!(restored.total_load().bytes > 0);
    assert_eq!(restored.total_load(), state.total_load());
    assert_eq!(restored.tenant_load("acme"), state.tenant_load("acme"));
    let shared: Vec<(u64, u64)> = state.shared_records().collect();
    assert_eq!(shared.len(), 4, "two callbacks, two versions of a schedule");
    assert_eq!(restored.shared_records().collect::<Vec<_>>(), shared);
}

/// As in Protocol Buffers: a later version may send workers more fields than this one knows.
#[test]
fn fields_that_are_not_known_are_passed_over() {
    let content = Content { payload: b"hi", format: Format::Json, ..Content::default() };
    let mut bytes = Vec::new();
    content::encode(&mut bytes, &content);
    let known = bytes.len();
    for unknown in [
        &[0xa8, 6, 7][..],
        &[0xa9, 6, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0xaa, 6, 2, b'h', b'o'],
        &[0xad, 6, 1, 2, 3, 4],
    ] {
        bytes.truncate(known);
        bytes.extend_from_slice(unknown);
        assert_eq!(content::decode(&bytes).as_ref(), Ok(&content), "{unknown:?}");
    }
    // A group, which no version writes.
    bytes.truncate(known);
    bytes.extend_from_slice(&[0xab, 6]);
    assert!(content::decode(&bytes).is_err());
}

#[test]
fn a_part_of_a_task_that_is_not_known_is_refused() {
    let mut bytes = Vec::new();
    record::encode(&Command::Enqueue(Enqueue::default()), &mut bytes);
    assert!(record::decode(&bytes).is_ok());
    // The number of its parts, with one more than there are.
    bytes.splice(1..2, [0x80, 0x02]);
    assert!(record::decode(&bytes).is_err());
}
