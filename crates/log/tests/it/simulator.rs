//! A seeded simulator: random work on a log whose disk loses power, fills up and fails, checked
//! against the model after each step. `EGRET_LOG_SEEDS` sets how many seeds are run,
//! `EGRET_LOG_SEED` runs just one.

use std::sync::Arc;
use std::time::Duration;

use egret_base::SeededEntropy;
use egret_base_test::run_over_seeds;
use egret_log::simulated::{Fault, SimulatedDisk, SplitMix64};
use egret_log::{
    AppendResult, Batch, Compaction, Durability, FileCompaction, FileLog, Housekeeping, Log,
    LogConfig, LogError, Recovery, Seq,
};

use crate::model::Model;

const SEEDS: u64 = 1_000;
const STEPS: u64 = 120;
const DISK_BYTES: u64 = 400 << 10;

/// A log so small that everything that can happen to it does.
pub fn small_config(durability: Durability) -> LogConfig {
    LogConfig {
        durability,
        segment_bytes: 10 << 10,
        first_segment_bytes: 6 << 10,
        spare_segments: 2,
        recycled_segments_max: 3,
        batch_bytes_max: 5 << 10,
        cache_bytes: 2 << 10,
        chunk_cache_bytes: 2 << 10,
        index_stride_bytes: 400,
        housekeeping: Housekeeping::Owner,
        open_segments_max: 2,
        must_exist: false,
        end_mark_must_exist: false,
        durable_below: Seq(0),
    }
}

/// How a life of the log ended.
enum End {
    PowerLoss,
    Kill,
    Close,
}

struct Simulation {
    chance: SplitMix64,
    disk: SimulatedDisk,
    config: LogConfig,
    log: Option<FileLog<SimulatedDisk>>,
    model: Model,
    batch: Batch,
    compaction: Option<FileCompaction<SimulatedDisk>>,
    /// All batches are alike and their records fill sectors, so that what is left of one fits where
    /// another should be.
    uniform: bool,
    opened: u64,
    seed: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut chance = SplitMix64::new(seed);
        let durability = match chance.next_below(4) {
            0 => Durability::None,
            1 => Durability::Interval(Duration::ZERO),
            _ => Durability::Fsync,
        };
        Self {
            uniform: chance.percent(30),
            chance,
            disk: SimulatedDisk::new(DISK_BYTES),
            config: small_config(durability),
            log: None,
            model: Model::default(),
            batch: Batch::new(),
            compaction: None,
            opened: 0,
            seed,
        }
    }

    fn run(&mut self) {
        self.reopen(1);
        for _ in 0..STEPS {
            self.step();
            if self.disk.is_dead() || self.chance.percent(2) {
                self.end_incarnation(End::PowerLoss);
            } else if self.chance.percent(2) {
                self.end_incarnation(End::Kill);
            } else if self.chance.percent(1) {
                self.end_incarnation(End::Close);
            }
        }
        self.end_incarnation(End::PowerLoss);
    }

    fn log(&mut self) -> &mut FileLog<SimulatedDisk> {
        self.log.as_mut().expect("the log is open between steps")
    }

    fn step(&mut self) {
        match self.chance.next_below(100) {
            0..45 => self.append(),
            45..60 => self.read(),
            60..64 => self.tail(),
            64..70 => self.sync(),
            70..82 => self.housekeep(),
            82..86 => self.begin_compaction(),
            86..90 => self.finish_compaction(),
            90..93 => self.truncate(),
            93..96 => self.inject(),
            96..98 => self.disk.resize(40 << 10),
            _ => self.disk.resize(DISK_BYTES),
        }
    }

    fn append(&mut self) {
        self.batch.clear();
        let count = if self.uniform { 3 } else { 1 + self.chance.next_below(8) };
        let mut bodies = Vec::new();
        for index in 0..count {
            let length = match self.chance.next_below(10) {
                // With the headers before them, 512 bytes each.
                _ if self.uniform => 448 + 48 * index.min(1),
                0 => 0,
                1 => self.chance.next_below(600),
                _ => self.chance.next_below(60),
            };
            let fill = self.chance.next_below(256) as u8;
            let body = vec![fill; length as usize];
            self.batch.push(&body);
            bodies.push(body);
        }
        let expected = Seq(self.model.next());
        let log = self.log.as_mut().expect("the log is open between steps");
        match log.append(&mut self.batch, expected) {
            Ok(AppendResult::Committed(last)) => {
                assert_eq!(last.0, expected.0 + count - 1);
                self.model.commit(bodies);
                self.model.uncertain.clear();
                if self.config.durability == Durability::Fsync {
                    self.model.durable_below = last.0 + 1;
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(LogError::Full { .. }) => {
                assert_eq!(self.batch.len() as u64, count, "the batch was not kept");
            }
            // Only a segment could not be begun: the log is as it was.
            Err(LogError::Io { .. }) => {}
            Err(LogError::Stopped { .. }) => self.handle_stop(bodies),
            Err(other) => panic!("{other}"),
        }
    }

    /// The append that stopped the log may be in it.
    fn handle_stop(&mut self, bodies: Vec<Vec<u8>>) {
        self.model.uncertain = bodies;
        let end = match self.chance.next_below(2) {
            0 => End::PowerLoss,
            _ => End::Kill,
        };
        self.end_incarnation(end);
    }

    fn read(&mut self) {
        for _ in 0..4 {
            let seq = 1 + self.chance.next_below(self.model.next());
            let log = self.log.as_ref().expect("the log is open between steps");
            self.model.check_read(log, seq);
        }
    }

    fn tail(&mut self) {
        let from = 1 + self.chance.next_below(self.model.next());
        let log = self.log.as_ref().expect("the log is open between steps");
        self.model.check_tail(log, from);
    }

    fn sync(&mut self) {
        match self.log().sync() {
            Ok(()) => self.model.durable_below = self.model.next(),
            Err(LogError::Stopped { .. }) => self.end_incarnation(End::Kill),
            Err(other) => panic!("{other}"),
        }
    }

    fn housekeep(&mut self) {
        for _ in 0..self.chance.next_below(4) {
            match self.log().housekeep() {
                Ok(_) | Err(LogError::Full { .. } | LogError::Io { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn begin_compaction(&mut self) {
        let log = self.log.as_mut().expect("the log is open between steps");
        let sealed: Vec<_> =
            log.segments().into_iter().filter(|segment| segment.is_sealed).collect();
        if sealed.is_empty() || self.compaction.is_some() {
            return;
        }
        let first = self.chance.next_below(sealed.len() as u64) as usize;
        let last = (first + self.chance.next_below(3) as usize).min(sealed.len() - 1);
        let compaction = log.prepare_compaction(sealed[first].first, sealed[last].last);
        self.compaction = Some(compaction.expect("these segments are sealed"));
    }

    fn finish_compaction(&mut self) {
        let Some(compaction) = self.compaction.take() else {
            return;
        };
        let salt = self.chance.next_below(5);
        let keep = move |seq: u64| (seq * 7 + salt) % 5 < salt;
        let compacted = match compaction.run(|seq| keep(seq.0)) {
            Ok(compacted) => compacted,
            // The log was truncated meanwhile.
            Err(LogError::NotSealed { .. }) => return,
            Err(LogError::Full { .. } | LogError::Io { .. }) => return,
            Err(other) => panic!("{other}"),
        };
        let (first, last) = compacted.range();
        match self.log().finish_compaction(compacted) {
            Ok(true) => self.model.remove_compacted(first.0, last.0, keep),
            Ok(false) | Err(LogError::Stopped { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn truncate(&mut self) {
        let below = 1 + self.chance.next_below(self.model.next());
        self.model.truncated_below = self.model.truncated_below.max(below);
        match self.log().truncate_below(Seq(below)) {
            Ok(()) | Err(LogError::Stopped { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn inject(&mut self) {
        let bytes = self.chance.next_below(400) as usize;
        let fault = match self.chance.next_below(6) {
            0 => Fault::ShortWrite(bytes),
            1 => Fault::Full(bytes),
            2 => Fault::WriteError(bytes),
            3 => Fault::SyncError,
            _ => Fault::PowerLoss(self.chance.next_below(3_000)),
        };
        self.disk.inject(fault);
    }

    fn end_incarnation(&mut self, end: End) {
        let least = match end {
            End::PowerLoss => {
                self.disk.lose_power(&mut self.chance);
                self.model.durable_below
            }
            End::Kill => {
                self.disk.kill_processes();
                self.model.next()
            }
            End::Close => self.model.next(),
        };
        self.compaction = None;
        self.log = None;
        self.disk.kill_processes();
        self.disk.resize(DISK_BYTES);
        self.reopen(least.max(1));
    }

    fn reopen(&mut self, least: u64) {
        self.opened += 1;
        if self.chance.percent(10) {
            self.disk.inject(Fault::PowerLoss(self.chance.next_below(2_000)));
            if let Err(failed) = self.open(least) {
                assert!(self.disk.is_dead(), "only the loss of power keeps it shut: {failed}");
                self.disk.lose_power(&mut self.chance);
                return self.reopen(self.model.durable_below.max(1));
            }
        }
        self.log = None;
        self.disk.kill_processes();
        let (log, _) = self.open(least).expect("nothing is wrong with the disk");
        self.model.check_reopened(&log, least);
        self.log = Some(log);
    }

    fn open(&mut self, least: u64) -> Result<(FileLog<SimulatedDisk>, Recovery), LogError> {
        let replay_from = match self.chance.next_below(3) {
            0 => least,
            1 => 1,
            _ => 1 + self.chance.next_below(least),
        };
        let entropy = SeededEntropy::new(self.seed ^ (self.opened << 32));
        let disk = self.disk.clone();
        // A log without any record would begin where it is asked to.
        let replay_from = if self.model.next() == 1 { 1 } else { replay_from };
        FileLog::open_with(disk, self.config, Seq(replay_from), Arc::new(entropy))
    }
}

#[test]
fn nothing_acknowledged_is_lost_whatever_happens() {
    run_over_seeds("LOG", SEEDS, |seed| Simulation::new(seed).run());
}
