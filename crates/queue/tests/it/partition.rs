//! A whole partition on a disk that loses power, fills up and fails: what was acknowledged is there
//! afterwards, and nothing is acknowledged that is not. `EGRET_QUEUE_CRASH_SEEDS` sets how many
//! seeds are run, `EGRET_QUEUE_CRASH_SEED` runs just one.

mod chains;
mod client_history;
mod clocks;
mod recording_sink;

use std::sync::Arc;
use std::time::Duration;

use egret_base::{ManualClock, SeededEntropy, Timestamp};
use egret_base_test::run_over_seeds;
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_log::{Durability, Housekeeping, LogConfig, LogError};
use egret_queue::core::command::{Defer, Enqueue};
use egret_queue::core::state::StateSnapshot;
use egret_queue::model::{QueueSettings, Retention};
use egret_queue::testing::{DrivenPartition, DrivenWorker};
use egret_queue::{QueueError, ReportKind};

use client_history::ClientHistory;
use recording_sink::{RecordingSink, SinkEvent};

const SEEDS: u64 = 1_000;
const STEPS: u64 = 150;
const DISK_BYTES: u64 = 400 << 10;
const QUEUE: u32 = 1;

fn log_config() -> LogConfig {
    LogConfig {
        durability: Durability::Fsync,
        segment_bytes: 16 << 10,
        first_segment_bytes: 8 << 10,
        spare_segments: 2,
        recycled_segments_max: 3,
        batch_bytes_max: 12 << 10,
        cache_bytes: 2 << 10,
        chunk_cache_bytes: 2 << 10,
        index_stride_bytes: 400,
        housekeeping: Housekeeping::Owner,
        open_segments_max: 2,
        must_exist: false,
        end_mark_must_exist: false,
        durable_below: egret_log::Seq(0),
    }
}

fn settings() -> QueueSettings {
    let for_ever = Retention { age_ms: 0, count: 0 };
    QueueSettings {
        max_attempts: 3,
        completed: for_ever,
        dead: for_ever,
        cancelled: for_ever,
        ..QueueSettings::default()
    }
}

struct CrashSimulation {
    rng: SplitMix64,
    disk: SimulatedDisk,
    clock: Arc<ManualClock>,
    entropy: Arc<SeededEntropy>,
    driven: Option<DrivenPartition>,
    worker: Option<DrivenWorker>,
    sink: Arc<RecordingSink>,
    history: ClientHistory,
    next_label: u64,
    /// Whether the disk has been made too small lately.
    is_small: bool,
}

impl CrashSimulation {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::starting_at(Timestamp::from_micros(1_790_000_000_000_000));
        Self {
            rng: SplitMix64::new(seed),
            disk: SimulatedDisk::new(DISK_BYTES),
            clock: Arc::new(clock),
            entropy: Arc::new(SeededEntropy::new(seed)),
            driven: None,
            worker: None,
            sink: Arc::default(),
            history: ClientHistory::default(),
            next_label: 1,
            is_small: false,
        }
    }

    fn run(&mut self) {
        self.reopen();
        for _ in 0..STEPS {
            self.step();
        }
        self.disk.resize(DISK_BYTES);
        self.crash(true);
        self.reopen();
        self.settle_chains();
    }

    fn open(&self) -> Result<DrivenPartition, QueueError> {
        let (clock, entropy) = (self.clock.clone(), self.entropy.clone());
        DrivenPartition::open(self.disk.clone(), log_config(), clock, entropy, 50)
    }

    /// Starts until it succeeds, and looks at what is there.
    fn reopen(&mut self) {
        let mut driven = match self.open() {
            Ok(driven) => driven,
            Err(error) => {
                let is_disk = self.is_small || self.disk.is_dead();
                assert!(is_disk, "it does not start: {error:?}");
                self.is_small = false;
                self.disk.resize(DISK_BYTES);
                self.disk.lose_power(&mut self.rng);
                self.open().expect("the disk works")
            }
        };
        self.history.check(&driven);
        self.sink = Arc::default();
        if driven.state().queue_by_id(QUEUE).is_none() {
            driven.housekeep();
            driven.put_queue(QUEUE, &settings()).expect("there is room");
        }
        self.worker = Some(driven.new_worker(QUEUE, 200, self.sink.clone()));
        self.history.restart();
        self.driven = Some(driven);
    }

    /// Ends the process, with or without the power.
    fn crash(&mut self, with_power: bool) {
        self.driven = None;
        if with_power { self.disk.lose_power(&mut self.rng) } else { self.disk.kill_processes() }
    }

    fn driven(&mut self) -> &mut DrivenPartition {
        self.driven.as_mut().expect("it is open between steps")
    }

    fn step(&mut self) {
        match self.rng.next_below(100) {
            0..24 => self.enqueue(),
            24..30 => self.enqueue_chain(),
            30..45 => {
                let count = 1 + self.rng.next_below(4) as u32;
                let driven = self.driven.as_mut().expect("it is open between steps");
                let worker = self.worker.as_ref().expect("it was attached");
                driven.add_credits(worker, count);
            }
            45..65 => self.report(),
            65..85 => self.turn(),
            85..88 => {
                let passed_ms = self.rng.next_below(300);
                self.clock.advance(Duration::from_millis(passed_ms));
                if self.rng.percent(10) {
                    self.clock.set_back(Duration::from_millis(passed_ms * 10));
                }
            }
            88..94 => self.driven().housekeep(),
            94..97 => self.schedule_fault(),
            97 => {
                self.is_small = true;
                self.disk.resize(20 << 10);
            }
            98 => {
                self.is_small = false;
                self.disk.resize(DISK_BYTES);
            }
            _ => {
                if self.rng.percent(30) {
                    self.compare_replay();
                    let with_power = self.rng.percent(50);
                    self.crash(with_power);
                    self.reopen();
                }
            }
        }
    }

    fn schedule_fault(&mut self) {
        let bytes = self.rng.next_below(3_000);
        self.disk.inject(match self.rng.next_below(5) {
            0 => Fault::ShortWrite(bytes as usize),
            1 => Fault::Full(bytes as usize),
            2 => Fault::WriteError(bytes as usize),
            3 => Fault::SyncError,
            _ => Fault::PowerLoss(bytes),
        });
    }

    fn enqueue(&mut self) {
        let count = 1 + self.rng.next_below(5);
        let size = [10, 100, 1_500][self.rng.next_below(3) as usize];
        let labels: Vec<u64> = (self.next_label..).take(count as usize).collect();
        self.next_label += count;
        let contents: Vec<Vec<u8>> =
            labels.iter().map(|label| client_history::content_of(*label, size)).collect();
        let tasks: Vec<(u64, Enqueue<'_>)> = labels
            .iter()
            .zip(&contents)
            .map(|(label, content)| {
                let task = Enqueue {
                    queue: QUEUE,
                    shard: (label % 4_096) as u16,
                    key: u128::from(label % 3),
                    content,
                    ..Enqueue::default()
                };
                (*label, task)
            })
            .collect();
        let ears = self.sink.clone();
        self.history.submit(&labels);
        self.driven().enqueue(&tasks, ears);
    }

    /// New tasks, without looking whether the disk is full: as large ones, so that it soon is.
    fn fill(&mut self) {
        let labels: Vec<u64> = (self.next_label..).take(5).collect();
        self.next_label += 5;
        let contents: Vec<Vec<u8>> =
            labels.iter().map(|label| client_history::content_of(*label, 300)).collect();
        let task = |content| Enqueue { queue: QUEUE, content, ..Enqueue::default() };
        let tasks: Vec<(u64, Enqueue<'_>)> = labels
            .iter()
            .zip(&contents)
            .map(|(label, content)| (*label, task(&**content)))
            .collect();
        let ears = self.sink.clone();
        self.driven().enqueue(&tasks, ears);
    }

    fn report(&mut self) {
        let Some(lease) = self.history.some_lease(&mut self.rng) else {
            return;
        };
        let said = match self.rng.next_below(6) {
            0..4 => ReportKind::Complete,
            4 => ReportKind::Fail { permanent: false },
            _ => ReportKind::Defer { delay_ms: 10, mode: Defer::Release },
        };
        let number = self.history.send_report(lease, said);
        let ears = self.sink.clone();
        self.driven().report(&[(number, lease, said, b"result")], ears);
    }

    fn turn(&mut self) {
        let ended = self.driven().run_turn();
        for heard in self.sink.take() {
            if let (Err(_), SinkEvent::Enqueued(_, Ok(_)) | SinkEvent::Reported(_, Ok(()))) =
                (&ended, &heard)
            {
                panic!("{heard:?} is told although the log failed");
            }
            self.history.receive_event(heard);
        }
        match ended {
            Ok(()) => {
                let driven = self.driven.as_ref().expect("it is open between steps");
                self.history.check_handed_out(driven.state());
                self.history.assert_all_answered(driven.is_idle());
            }
            Err(error) => {
                assert!(matches!(error, LogError::Stopped { .. }), "{error:?}");
                self.history.assert_all_answered(true);
                let with_power = self.disk.is_dead() || self.rng.percent(50);
                self.crash(with_power);
                self.reopen();
            }
        }
    }

    /// What the log holds is what the partition knows.
    fn compare_replay(&mut self) {
        let driven = self.driven.as_ref().expect("it is open between steps");
        if driven.is_commit_pending() {
            return;
        }
        let Ok(mut replayed) = driven.replay_log() else {
            assert!(self.disk.is_dead());
            return;
        };
        let image = |image: StateSnapshot| {
            // A clock alone is not written down.
            let image = StateSnapshot { now_ms: 0, ..image };
            let mut bytes = Vec::new();
            let seq = egret_log::Seq(1);
            egret_queue::testing::snapshot::write_to(&mut bytes, seq, &image, &mut |_| {})
                .expect("memory is large");
            bytes
        };
        let same = image(replayed.take_snapshot()) == image(driven.state().clone().take_snapshot());
        assert!(same, "the replay differs from the state");
    }
}

#[test]
fn what_is_acknowledged_is_there_whatever_the_disk_does() {
    run_over_seeds("QUEUE_CRASH", SEEDS, |seed| CrashSimulation::new(seed).run());
}

/// New tasks are refused while there is a reserve for those that are there, and taken in again.
#[test]
fn a_full_disk_refuses_new_tasks_and_lets_work_go_on() {
    let mut all = CrashSimulation::new(1);
    all.reopen();
    all.driven().housekeep();
    all.disk.resize(0);
    let mut refused = 0;
    for _ in 0..200 {
        all.enqueue();
        all.driven().run_turn().expect("the reserve is there");
        // No housekeeping has found out that there is no room: the turn itself must.
        assert!(!all.driven().is_commit_pending());
        for heard in all.sink.take() {
            refused += u32::from(matches!(
                &heard,
                SinkEvent::Enqueued(_, Err(QueueError::DiskFull { .. }))
            ));
            all.history.receive_event(heard);
        }
    }
    assert!(refused > 0);
    let worker = all.worker.as_ref().expect("it was attached");
    all.driven.as_mut().expect("it is open").add_credits(worker, 20);
    all.driven().run_turn().expect("the reserve is there");
    all.sink.take().into_iter().for_each(|heard| all.history.receive_event(heard));
    let leases = all.history.leases();
    assert!(leases.len() > 3);
    for lease in leases {
        let number = all.history.send_report(lease, ReportKind::Complete);
        let ears = all.sink.clone();
        all.driven().report(&[(number, lease, ReportKind::Complete, b"done")], ears);
    }
    all.driven().run_turn().expect("the reserve is there");
    for heard in all.sink.take() {
        let done = matches!(heard, SinkEvent::Reported(_, Ok(())) | SinkEvent::Assigned(..));
        assert!(done, "{heard:?}");
        all.history.receive_event(heard);
    }
    all.disk.resize(DISK_BYTES);
    all.driven().housekeep();
    all.enqueue();
    all.driven().run_turn().expect("there is room");
    for heard in all.sink.take() {
        let taken_in = matches!(heard, SinkEvent::Enqueued(_, Ok(_)) | SinkEvent::Assigned(..));
        assert!(taken_in, "{heard:?}");
        all.history.receive_event(heard);
    }
    all.crash(true);
    all.reopen();
}

/// After a failed sync it is not known what is on the disk: no outcome is reported any more.
#[test]
fn a_failed_sync_ends_the_partition_and_everybody_is_told() {
    let mut all = CrashSimulation::new(2);
    all.reopen();
    all.enqueue();
    all.disk.inject(Fault::SyncError);
    assert!(matches!(all.driven().run_turn(), Err(LogError::Stopped { .. })));
    let heard = all.sink.take();
    let refused =
        |heard: &SinkEvent| matches!(heard, SinkEvent::Enqueued(_, Err(QueueError::Log(_))));
    assert!(!heard.is_empty() && heard.iter().all(refused), "{heard:?}");
    heard.into_iter().for_each(|heard| all.history.receive_event(heard));
    all.crash(true);
    all.reopen();
}

/// What fits into no batch of the log is refused by itself, and what fits only alone waits for its
/// turn.
#[test]
fn what_is_too_large_for_the_log_harms_nobody_else() {
    let mut all = CrashSimulation::new(3);
    all.reopen();
    all.driven().housekeep();
    let mut expected = Vec::new();
    for size in [100, 6_000, 20_000, 9_000, 100] {
        let label = all.next_label;
        all.next_label += 1;
        let content = client_history::content_of(label, size);
        let task = Enqueue { queue: QUEUE, content: &content, ..Enqueue::default() };
        all.history.submit(&[label]);
        let ears = all.sink.clone();
        all.driven().enqueue(&[(label, task)], ears);
        expected.push((label, size < 20_000));
    }
    while !all.driven().is_idle() {
        all.driven().run_turn().expect("the disk works");
    }
    let mut heard: Vec<(u64, bool)> = Vec::new();
    for one in all.sink.take() {
        match one {
            SinkEvent::Enqueued(label, Ok(_)) => heard.push((label, true)),
            SinkEvent::Enqueued(label, Err(QueueError::TooLarge { .. })) => {
                heard.push((label, false))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, expected);
}

/// A log that takes nothing for a while is asked again; no outcome is reported before it has.
#[test]
fn a_turn_that_the_log_does_not_take_is_told_when_it_does() {
    let mut all = CrashSimulation::new(4);
    all.reopen();
    all.driven().run_turn().expect("the disk works");
    all.sink.take();
    for _ in 0..4 {
        all.fill();
    }
    for _ in 0..4 {
        all.disk.inject(Fault::Full(0));
        all.driven().run_turn().expect("the log does not stop");
        assert!(all.driven().is_commit_pending() && all.sink.take().is_empty());
    }
    all.driven().run_turn().expect("there is room");
    assert!(!all.driven().is_commit_pending());
    assert_eq!(all.sink.take().len(), 20);
    all.compare_replay();
}
