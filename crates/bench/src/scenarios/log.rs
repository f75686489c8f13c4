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

const BARE: &str = "bare";
const UNCOALESCED: &str = "uncoalesced";
const ONE: &str = "one_appender";

/// Appends on the way at a time, and what the arm is called.
const IN_FLIGHT: [(usize, &str); 2] = [(64, "in_flight_64"), (512, "in_flight_512")];

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
        Ok(Self {
            args: args.clone(),
            directory: None,
        })
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
        named
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn headline(&self) -> &str {
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
        stage.progress.say("appending");
        let directory = self.directory()?.to_owned();
        let window = stage.open_window(None)?;
        let (args, origin) = (self.args.clone(), window.origin());
        let done = tokio::task::spawn_blocking(move || rounds(&directory, &args, origin)).await??;
        let observed = window.close().await?;
        let mut measurement = Measurement::new(observed, Recording::merge(done.recorders));
        let latencies = measurement.recording.metrics();
        measurement.metrics = figures(&done.spent, &latencies);
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
    spent: BTreeMap<&'static str, Duration>,
}

/// Rates, and what they are in terms of the bare disk.
fn figures(
    spent: &BTreeMap<&'static str, Duration>,
    latencies: &BTreeMap<String, Metric>,
) -> BTreeMap<String, Metric> {
    let rate = |arm: &str| {
        let count = latencies.get(arm).map_or(0, |metric| metric.samples);
        let seconds = spent.get(arm).map_or(0.0, Duration::as_secs_f64);
        (count as f64 / seconds.max(1e-9), count)
    };
    let (bare, _) = rate(BARE);
    let arms = IN_FLIGHT.map(|(_, arm)| arm);
    let mut metrics = BTreeMap::new();
    for arm in [BARE, UNCOALESCED, ONE].into_iter().chain(arms) {
        let (per_second, count) = rate(arm);
        let ratio = per_second / bare.max(1e-9);
        metrics.insert(
            format!("{arm}_per_second"),
            scalar("1/s", Better::Higher, per_second, count),
        );
        if arm != BARE {
            let ratio = scalar("ratio", Better::Higher, ratio, count);
            metrics.insert(format!("{arm}_ratio"), ratio);
        }
    }
    let sync = latencies.get(BARE).and_then(|metric| metric.p50);
    for arm in arms {
        let metric = latencies.get(arm);
        if let (Some(sync), Some(p99)) = (sync, metric.and_then(|metric| metric.p99)) {
            let samples = metric.map_or(0, |metric| metric.samples);
            let ratio = scalar("ratio", Better::Lower, p99 / sync.max(1e-9), samples);
            metrics.insert(format!("{arm}_p99_in_syncs"), ratio);
        }
    }
    metrics
}

fn rounds(directory: &Path, args: &LogArgs, origin: Instant) -> Result<ScenarioTotals> {
    let mut done = ScenarioTotals::default();
    let time = args.seconds / ROUNDS;
    let record = vec![7; args.record_bytes as usize];
    let bare = Bare::make(directory.join("bare"))?;
    let group = GroupCommitter::start(open(&directory.join("log"))?, GroupConfig::default())?;
    for round in 0..=ROUNDS {
        let mut run =
            |arm: &'static str, work: &mut dyn FnMut(ArmClock) -> Result<Vec<Recorder>>| {
                let begun = Instant::now();
                let clock = ArmClock {
                    arm,
                    origin,
                    until: begun + time,
                };
                let recorders = work(clock)?;
                if round > 0 {
                    done.recorders.extend(recorders);
                    *done.spent.entry(arm).or_default() += begun.elapsed();
                }
                Ok::<(), anyhow::Error>(())
            };
        run(BARE, &mut |clock| bare.run(clock))?;
        run(UNCOALESCED, &mut |clock| {
            group.with_log(|log| uncoalesced(log, &record, clock))
        })?;
        run(ONE, &mut |clock| alone(&group, &record, clock))?;
        for (in_flight, arm) in IN_FLIGHT {
            group.with_log(|log| log.truncate_below(log.next()))?;
            run(arm, &mut |clock| {
                many(&group, &record, args.threads, in_flight, clock)
            })?;
        }
        group.with_log(|log| log.truncate_below(log.next()))?;
    }
    Ok(done)
}

/// Time limits of one run of an arm.
#[derive(Clone, Copy)]
struct ArmClock {
    arm: &'static str,
    origin: Instant,
    until: Instant,
}

impl ArmClock {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn note(&self, recorder: &mut Recorder, begun: Instant, ended: Instant) {
        let at = |moment: Instant| moment.saturating_duration_since(self.origin);
        recorder.success(self.arm, at(begun), at(begun), at(ended));
    }
}

/// The disk by itself: a block written and synced, in a file whose blocks are there already.
struct Bare {
    disk: Directory,
}

impl Bare {
    fn make(directory: PathBuf) -> Result<Self> {
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
            clock.note(&mut recorder, begun, Instant::now());
            block = (block + 1) % BARE_BLOCKS;
        }
        Ok(vec![recorder])
    }
}

fn open(directory: &Path) -> Result<FileLog> {
    let disk = Directory::open(directory).context("make a directory")?;
    let (log, _) = FileLog::open(disk, LogConfig::default(), Seq::FIRST)?;
    Ok(log)
}

/// A sync for each record: what there would be without coalescing, however many wait.
fn uncoalesced(log: &mut FileLog, record: &[u8], clock: ArmClock) -> Result<Vec<Recorder>> {
    let (mut batch, mut recorder) = (Batch::new(), Recorder::default());
    while !clock.is_over() {
        let begun = Instant::now();
        batch.push(record);
        let expected = log.next();
        let appended = log.append(&mut batch, expected)?;
        ensure!(
            matches!(appended, AppendResult::Committed(_)),
            "an append is not committed"
        );
        clock.note(&mut recorder, begun, Instant::now());
    }
    Ok(vec![recorder])
}

/// One that waits for each of its records.
fn alone(group: &GroupCommitter<FileLog>, record: &[u8], clock: ArmClock) -> Result<Vec<Recorder>> {
    let mut recorder = Recorder::default();
    while !clock.is_over() {
        let begun = Instant::now();
        group.append(record)?;
        clock.note(&mut recorder, begun, Instant::now());
    }
    Ok(vec![recorder])
}

/// Threads that keep so many records on the way between them.
fn many(
    group: &GroupCommitter<FileLog>,
    record: &[u8],
    threads: u32,
    in_flight: usize,
    clock: ArmClock,
) -> Result<Vec<Recorder>> {
    let each = in_flight.div_ceil(threads as usize);
    std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| keep_on_the_way(group, record, each, clock)))
            .collect();
        let recorders = appenders.into_iter();
        recorders
            .map(|appender| appender.join().expect("an appender does not panic"))
            .collect()
    })
}

fn keep_on_the_way(
    group: &GroupCommitter<FileLog>,
    record: &[u8],
    count: usize,
    clock: ArmClock,
) -> Result<Recorder> {
    let mut recorder = Recorder::default();
    let mut waiting: VecDeque<(Ticket, Instant)> = VecDeque::with_capacity(count);
    loop {
        let now = Instant::now();
        if now >= clock.until {
            // The rest is waited for and does not count.
            for (ticket, _) in waiting {
                group.wait(ticket)?;
            }
            return Ok(recorder);
        }
        while waiting.len() < count {
            waiting.push_back((group.submit(record)?, now));
        }
        let Some((ticket, begun)) = waiting.pop_front() else {
            continue;
        };
        group.wait(ticket)?;
        let now = Instant::now();
        clock.note(&mut recorder, begun, now);
        while let Some((ticket, begun)) = waiting.front().copied() {
            let Some(known) = group.try_wait(ticket) else {
                break;
            };
            known?;
            waiting.pop_front();
            clock.note(&mut recorder, begun, now);
        }
    }
}
