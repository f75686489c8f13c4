//! `egret bench log`: the log under every queue, beside the bare disk of the same run.
//!
//! The one scenario that goes through no public door, since the log has none.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use egret_bench_cli::LogArgs;
use egret_log::group::{GroupCommitter, GroupConfig, Ticket};
use egret_log::{AppendResult, Batch, Directory, Disk, DiskFile, FileLog, Log, LogConfig, Seq};
use serde_json::Value;
use tempfile::TempDir;

use crate::record::{Recorder, Recording, scalar};
use crate::result::{Better, Metric};
use crate::scenario::{Measurement, Scenario};
use crate::stage::Stage;
use crate::{Refusal, private_directory};

/// Rounds of all arms, in turn, so that a disk that changes meanwhile changes all of them. There is
/// one before them that does not count: a log that has been in use has segments to use again and
/// need not make any.
const ROUNDS: u32 = 5;

/// Blocks of the file that the bare disk is measured with.
const BARE_BLOCKS: u64 = 4_096;

const BLOCK_BYTES: usize = 4_096;

const BARE_DISK_ARM: &str = "bare";
const UNCOALESCED_ARM: &str = "uncoalesced";
const ONE_APPENDER_ARM: &str = "one_appender";

/// Appends on the way at a time, and what the arm is called.
const IN_FLIGHT_ARMS: [(usize, &str); 2] = [(64, "in_flight_64"), (512, "in_flight_512")];

pub(crate) struct LogAppends {
    args: LogArgs,
    directory: Option<TempDir>,
}

impl LogAppends {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When an Egret is named: none takes part.
    pub(crate) fn new(args: &LogArgs) -> Result<Self> {
        if args.run.private || args.run.server.is_some() || args.run.profile {
            let message = "`egret bench log` measures the log by itself: omit --private, --server and --profile";
            return Err(Refusal::Usage(message.to_owned()).into());
        }
        Ok(Self { args: args.clone(), directory: None })
    }

    fn directory(&self) -> Result<&Path> {
        let directory = self.directory.as_ref();
        Ok(directory.context("the scenario is not prepared")?.path())
    }
}

impl Scenario for LogAppends {
    const NAME: &'static str = "log";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let all: [(&str, Value); 3] = [
            ("record_bytes", args.record_bytes.into()),
            ("threads", args.threads.into()),
            ("seconds", args.seconds.as_secs_f64().into()),
        ];
        let named = all.into_iter();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn ranking_metric(&self) -> &str {
        "in_flight_512_per_second"
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let directory = private_directory(self.args.directory.as_deref())?;
        stage.subject.data_dir = Some(directory.path().to_owned());
        stage.subject.data_set = format!("{} bytes a record", self.args.record_bytes);
        self.directory = Some(directory);
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        stage.progress.show("appending");
        let directory = self.directory()?.to_owned();
        let window = stage.open_window(None)?;
        let (args, origin) = (self.args.clone(), window.origin());
        let totals =
            tokio::task::spawn_blocking(move || run_rounds(&directory, &args, origin)).await??;
        let observed = window.close().await?;
        let mut measurement = Measurement::new(observed, Recording::merge(totals.recorders));
        let latencies = measurement.recording.metrics();
        measurement.metrics = figures(&totals.durations, &latencies);
        Ok(measurement)
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.directory.take() {
            Some(directory) => directory.close().context("remove the log"),
            None => Ok(()),
        }
    }
}

/// Measurements of all rounds.
#[derive(Default)]
struct ScenarioTotals {
    recorders: Vec<Recorder>,
    /// How long each arm ran.
    durations: BTreeMap<&'static str, Duration>,
}

/// Rates, and what they are in terms of the bare disk.
fn figures(
    durations: &BTreeMap<&'static str, Duration>,
    latencies: &BTreeMap<String, Metric>,
) -> BTreeMap<String, Metric> {
    let rate = |arm: &str| {
        let count = latencies.get(arm).map_or(0, |metric| metric.samples);
        let seconds = durations.get(arm).map_or(0.0, Duration::as_secs_f64);
        (count as f64 / seconds.max(1e-9), count)
    };
    let (bare, _) = rate(BARE_DISK_ARM);
    let arms = IN_FLIGHT_ARMS.map(|(_, arm)| arm);
    let mut metrics = BTreeMap::new();
    for arm in [BARE_DISK_ARM, UNCOALESCED_ARM, ONE_APPENDER_ARM].into_iter().chain(arms) {
        let (per_second, count) = rate(arm);
        let ratio = per_second / bare.max(1e-9);
        metrics
            .insert(format!("{arm}_per_second"), scalar("1/s", Better::Higher, per_second, count));
        if arm != BARE_DISK_ARM {
            let ratio = scalar("ratio", Better::Higher, ratio, count);
            metrics.insert(format!("{arm}_ratio"), ratio);
        }
    }
    let sync_latency = latencies.get(BARE_DISK_ARM).and_then(|metric| metric.p50);
    for arm in arms {
        let metric = latencies.get(arm);
        if let (Some(sync), Some(p99)) = (sync_latency, metric.and_then(|metric| metric.p99)) {
            let samples = metric.map_or(0, |metric| metric.samples);
            let ratio = scalar("ratio", Better::Lower, p99 / sync.max(1e-9), samples);
            metrics.insert(format!("{arm}_p99_in_syncs"), ratio);
        }
    }
    metrics
}

fn run_rounds(directory: &Path, args: &LogArgs, origin: Instant) -> Result<ScenarioTotals> {
    let mut totals = ScenarioTotals::default();
    let round_duration = args.seconds / ROUNDS;
    let record = vec![7; args.record_bytes as usize];
    let bare_disk = BareDisk::create(directory.join("bare"))?;
    let committer =
        GroupCommitter::start(open_log(&directory.join("log"))?, GroupConfig::default())?;
    for round in 0..=ROUNDS {
        let mut run_arm =
            |arm: &'static str, work: &mut dyn FnMut(ArmClock) -> Result<Vec<Recorder>>| {
                let begun = Instant::now();
                let clock = ArmClock { arm, origin, deadline: begun + round_duration };
                let recorders = work(clock)?;
                if round > 0 {
                    totals.recorders.extend(recorders);
                    *totals.durations.entry(arm).or_default() += begun.elapsed();
                }
                Ok::<(), anyhow::Error>(())
            };
        run_arm(BARE_DISK_ARM, &mut |clock| bare_disk.run(clock))?;
        run_arm(UNCOALESCED_ARM, &mut |clock| {
            committer.with_log(|log| append_uncoalesced(log, &record, clock))
        })?;
        run_arm(ONE_APPENDER_ARM, &mut |clock| append_one_by_one(&committer, &record, clock))?;
        for (in_flight, arm) in IN_FLIGHT_ARMS {
            committer.with_log(|log| log.truncate_below(log.next_seq()))?;
            run_arm(arm, &mut |clock| {
                append_in_flight(&committer, &record, args.threads, in_flight, clock)
            })?;
        }
        committer.with_log(|log| log.truncate_below(log.next_seq()))?;
    }
    Ok(totals)
}

/// Time limits of one run of an arm.
#[derive(Clone, Copy)]
struct ArmClock {
    arm: &'static str,
    origin: Instant,
    deadline: Instant,
}

impl ArmClock {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn record(&self, recorder: &mut Recorder, begun: Instant, ended: Instant) {
        let offset = |moment: Instant| moment.saturating_duration_since(self.origin);
        recorder.record_success(self.arm, offset(begun), offset(begun), offset(ended));
    }
}

/// The disk by itself: a block written and synced, in a file whose blocks are there already.
struct BareDisk {
    disk: Directory,
}

impl BareDisk {
    fn create(directory: PathBuf) -> Result<Self> {
        let disk = Directory::open(&directory).context("make a directory")?;
        let file = disk.create("blocks")?;
        for block in 0..BARE_BLOCKS {
            file.write_at(&[0; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
        }
        file.sync_data()?;
        Ok(Self { disk })
    }

    fn run(&self, clock: ArmClock) -> Result<Vec<Recorder>> {
        let file = self.disk.open("blocks")?;
        let mut recorder = Recorder::default();
        let mut block = 0;
        while !clock.is_over() {
            let begun = Instant::now();
            file.write_at(&[1; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
            file.sync_data()?;
            clock.record(&mut recorder, begun, Instant::now());
            block = (block + 1) % BARE_BLOCKS;
        }
        Ok(vec![recorder])
    }
}

fn open_log(directory: &Path) -> Result<FileLog> {
    let disk = Directory::open(directory).context("make a directory")?;
    let (log, _) = FileLog::open(disk, LogConfig::default(), Seq::FIRST)?;
    Ok(log)
}

/// A sync for each record: what there would be without coalescing, however many wait.
fn append_uncoalesced(log: &mut FileLog, record: &[u8], clock: ArmClock) -> Result<Vec<Recorder>> {
    let (mut batch, mut recorder) = (Batch::new(), Recorder::default());
    while !clock.is_over() {
        let begun = Instant::now();
        batch.push(record);
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected)?;
        ensure!(matches!(appended, AppendResult::Committed(_)), "an append is not committed");
        clock.record(&mut recorder, begun, Instant::now());
    }
    Ok(vec![recorder])
}

/// One that waits for each of its records.
fn append_one_by_one(
    group: &GroupCommitter<FileLog>,
    record: &[u8],
    clock: ArmClock,
) -> Result<Vec<Recorder>> {
    let mut recorder = Recorder::default();
    while !clock.is_over() {
        let begun = Instant::now();
        group.append(record)?;
        clock.record(&mut recorder, begun, Instant::now());
    }
    Ok(vec![recorder])
}

/// Threads that keep so many records on the way between them.
fn append_in_flight(
    group: &GroupCommitter<FileLog>,
    record: &[u8],
    threads: u32,
    in_flight: usize,
    clock: ArmClock,
) -> Result<Vec<Recorder>> {
    let per_thread = in_flight.div_ceil(threads as usize);
    std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| append_pipelined(group, record, per_thread, clock)))
            .collect();
        let recorders = appenders.into_iter();
        recorders.map(|appender| appender.join().expect("an appender does not panic")).collect()
    })
}

fn append_pipelined(
    group: &GroupCommitter<FileLog>,
    record: &[u8],
    count: usize,
    clock: ArmClock,
) -> Result<Recorder> {
    let mut recorder = Recorder::default();
    let mut pending: VecDeque<(Ticket, Instant)> = VecDeque::with_capacity(count);
    loop {
        let now = Instant::now();
        if now >= clock.deadline {
            // The rest is waited for and does not count.
            for (ticket, _) in pending {
                group.wait(ticket)?;
            }
            return Ok(recorder);
        }
        while pending.len() < count {
            pending.push_back((group.submit(record)?, now));
        }
        let Some((ticket, begun)) = pending.pop_front() else {
            continue;
        };
        group.wait(ticket)?;
        let now = Instant::now();
        clock.record(&mut recorder, begun, now);
        while let Some((ticket, begun)) = pending.front().copied() {
            let Some(result) = group.try_wait(ticket) else {
                break;
            };
            result?;
            pending.pop_front();
            clock.record(&mut recorder, begun, now);
        }
    }
}
