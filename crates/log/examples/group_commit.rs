//! How many appends a second one sync can carry: the figures of this crate, beside the bare disk in
//! the same run. `cargo run --release -p egret-log --example group_commit -- <directory>
//! [seconds]`.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use egret_log::group::{GroupCommitter, GroupConfig, Ticket};
use egret_log::{
    AppendResult, Batch, Directory, Disk, DiskFile, FileLog, Log, LogConfig, LogReader, Seq,
};

const RECORD: [u8; 128] = [7; 128];

/// What one arm did.
struct ArmResult {
    per_second: f64,
    latencies: Vec<Duration>,
}

impl ArmResult {
    fn new(count: usize, elapsed: Duration, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { per_second: count as f64 / elapsed.as_secs_f64(), latencies }
    }

    fn percentile(&self, percent: usize) -> Duration {
        let last = self.latencies.len() - 1;
        self.latencies[last.min(self.latencies.len() * percent / 100)]
    }

    fn print(&self, name: &str, bare: &Self) {
        println!(
            "{name:32} {:>10.0}/s {:>7.2} x bare   p50 {:>7.1} us  p99 {:>7.1} us = {:.1} x",
            self.per_second,
            self.per_second / bare.per_second,
            self.percentile(50).as_secs_f64() * 1e6,
            self.percentile(99).as_secs_f64() * 1e6,
            self.percentile(99).as_secs_f64() / bare.percentile(50).as_secs_f64(),
        );
    }
}

/// 4 KiB written and synced, in a file that is there already.
fn measure_bare_disk(directory: &Path, duration: Duration) -> std::io::Result<ArmResult> {
    let disk = Directory::open(directory)?;
    let file = disk.create("bare")?;
    for block in 0..16_384u64 {
        file.write_at(&[0; 4096], block * 4096)?;
    }
    file.sync_data()?;
    let mut latencies = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        file.write_at(&[1; 4096], (latencies.len() as u64 % 16_384) * 4096)?;
        file.sync_data()?;
        latencies.push(start.elapsed());
    }
    disk.remove("bare")?;
    Ok(ArmResult::new(latencies.len(), begin.elapsed(), latencies))
}

/// One owner, one record an append: what there would be without coalescing.
fn measure_uncoalesced(log: &mut FileLog, duration: Duration) -> ArmResult {
    let mut batch = Batch::new();
    let mut latencies = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        batch.push(&RECORD);
        let expected = log.next_seq();
        let appended = log.append(&mut batch, expected).expect("the disk works");
        assert!(matches!(appended, AppendResult::Committed(_)));
        latencies.push(start.elapsed());
    }
    ArmResult::new(latencies.len(), begin.elapsed(), latencies)
}

/// One thread that waits for each record.
fn measure_one_appender(group: &GroupCommitter<FileLog>, duration: Duration) -> ArmResult {
    let mut latencies = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < duration {
        let start = Instant::now();
        group.append(&RECORD).expect("the disk works");
        latencies.push(start.elapsed());
    }
    ArmResult::new(latencies.len(), begin.elapsed(), latencies)
}

/// `threads` that keep `in_flight` records between them on the way.
fn measure_in_flight(
    group: &GroupCommitter<FileLog>,
    threads: usize,
    in_flight: usize,
    duration: Duration,
) -> ArmResult {
    let begin = Instant::now();
    let results: Vec<(usize, Vec<Duration>)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| append_pipelined(group, in_flight / threads, begin + duration)))
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.map(|done| done.expect("no panic")).collect()
    });
    let count = results.iter().map(|(count, _)| count).sum();
    let latencies = results.into_iter().flat_map(|(_, latencies)| latencies);
    ArmResult::new(count, begin.elapsed(), latencies.collect())
}

fn append_pipelined(
    group: &GroupCommitter<FileLog>,
    in_flight: usize,
    deadline: Instant,
) -> (usize, Vec<Duration>) {
    let mut pending: VecDeque<(Ticket, Instant)> = VecDeque::with_capacity(in_flight);
    let mut latencies = Vec::new();
    let mut count = 0;
    loop {
        let now = Instant::now();
        if now >= deadline {
            break;
        }
        while pending.len() < in_flight {
            pending.push_back((group.submit(&RECORD).expect("the limits are larger"), now));
        }
        let (oldest, since) = pending.pop_front().expect("the window is not empty");
        group.wait(oldest).expect("the disk works");
        let now = Instant::now();
        latencies.push(now - since);
        count += 1;
        while let Some((ticket, _)) = pending.front() {
            let Some(result) = group.try_wait(*ticket) else {
                break;
            };
            result.expect("the disk works");
            let (_, since) = pending.pop_front().expect("it is the front");
            latencies.push(now - since);
            count += 1;
        }
    }
    (count, latencies)
}

/// Opening with everything to be replayed, a stream over it, and reads one by one, in order.
fn replay(directory: &Path) {
    let disk = Directory::open(directory).expect("the directory can be made");
    let begin = Instant::now();
    let (log, recovery) =
        FileLog::open(disk, LogConfig::default(), Seq::FIRST).expect("the log opens");
    let rate = |bytes: u64, begin: Instant| bytes as f64 / begin.elapsed().as_secs_f64() / 1e9;
    let scanned = recovery.bytes_scanned;
    println!("opened, {scanned} bytes checked: {:.2} GB/s", rate(scanned, begin));
    let begin = Instant::now();
    let bytes: usize = log
        .read_from(log.first_seq())
        .map(|item| 16 + item.expect("the log is whole").1.len())
        .sum();
    println!("tail: {:.2} GB/s", rate(bytes as u64, begin));
    let reader = log.reader();
    let begin = Instant::now();
    let mut records = 0u32;
    for seq in (log.first_seq().0..log.next_seq().0).take(1_000_000) {
        reader.read(Seq(seq)).expect("the log is whole");
        records += 1;
    }
    println!(
        "read in order: {:.0} ns a record",
        begin.elapsed().as_nanos() as f64 / f64::from(records)
    );
}

fn open_log(directory: &Path) -> FileLog {
    let disk = Directory::open(directory).expect("the directory can be made");
    let (log, _) = FileLog::open(disk, LogConfig::default(), Seq::FIRST).expect("the log opens");
    log
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("usage: group_commit <directory> [seconds]");
    let seconds = arguments.next().map_or(3, |text| text.parse().expect("seconds are a number"));
    let duration = Duration::from_secs(seconds);
    let directory = Path::new(&directory);
    let base = measure_bare_disk(directory, duration).expect("the disk works");
    base.print("bare 4 KiB pwrite + fdatasync", &base);
    let mut log = open_log(&directory.join("log"));
    measure_uncoalesced(&mut log, duration).print("one by one, no coalescing", &base);
    let group = GroupCommitter::start(log, GroupConfig::default()).expect("a thread starts");
    measure_one_appender(&group, duration).print("one appender", &base);
    for (threads, in_flight) in [(2, 64), (4, 64), (2, 512), (4, 512), (8, 512)] {
        group.with_log(|log| log.truncate_below(log.next_seq())).expect("the log runs");
        let measured = measure_in_flight(&group, threads, in_flight, duration);
        measured.print(&format!("{in_flight} in flight, {threads} threads"), &base);
    }
    drop(group);
    replay(&directory.join("log"));
    measure_bare_disk(directory, duration).expect("the disk works").print("bare, once more", &base);
}
