//! A real process that appends to real files is killed at random moments: everything that it said
//! was acknowledged is there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use egret_log::simulated::SplitMix64;
use egret_log::{AppendResult, Batch, Compaction, Directory, FileLog, Log, LogConfig, Seq};

const HOME: &str = "EGRET_LOG_TEST_HOME";
const KILLS: u64 = 30;

fn body(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat((seq % 61) as usize)
}

fn open(home: &Path, from: u64) -> FileLog {
    let config = LogConfig {
        segment_bytes: 1 << 20,
        first_segment_bytes: 256 << 10,
        batch_bytes_max: 256 << 10,
        ..LogConfig::default()
    };
    let disk = Directory::open(home).expect("the directory can be made");
    let (log, _) = FileLog::open(disk, config, Seq(from)).expect("the log opens");
    log
}

/// Appends, compacts and truncates, and says what it has got acknowledged.
fn work(home: &Path, batches: u64) {
    let mut log = open(home, 1);
    let mut chance = SplitMix64::new(log.next_seq().0);
    let mut batch = Batch::new();
    let mut output = std::io::stdout().lock();
    for _ in 0..batches {
        let expected = log.next_seq();
        (0..1 + chance.next_below(200)).for_each(|index| batch.push(&body(expected.0 + index)));
        match log.append(&mut batch, expected).expect("the disk works") {
            AppendResult::Committed(last) => writeln!(output, "acknowledged {last}"),
            other => panic!("{other:?}"),
        }
        .expect("somebody listens");
        let segments = log.segments();
        if segments.len() > 6 && !segments[0].is_compacted {
            let (first, last) = (segments[0].first, segments[2].last);
            let compaction = log.prepare_compaction(first, last).expect("they are sealed");
            let compacted = compaction.run(|seq| seq.0 % 2 == 0).expect("the disk works");
            assert!(log.finish_compaction(compacted).expect("the log runs"));
        }
        if segments.len() > 8 {
            log.truncate_below(segments[1].first).expect("the log runs");
        }
    }
}

/// The child of the test below; by itself it works a little and ends.
#[test]
fn a_process_that_appends() {
    match std::env::var_os(HOME) {
        Some(home) => work(Path::new(&home), u64::MAX),
        None => {
            let home = tempfile::tempdir().expect("a temporary directory");
            work(home.path(), 3);
            assert!(open(home.path(), 1).next_seq() > Seq(3));
        }
    }
}

#[test]
fn what_a_killed_process_had_acknowledged_is_there() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut chance = SplitMix64::new(42);
    let mut acknowledged = 0;
    for _ in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "crash::a_process_that_appends", "--nocapture"])
            .env(HOME, home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("this program can be run");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let lines = 5 + chance.next_below(300);
        let mut seen = 0;
        let mut note = |line: &str| {
            let last = line.strip_prefix("acknowledged ")?.parse().ok()?;
            acknowledged = acknowledged.max(last);
            Some(())
        };
        while seen < lines {
            let line = output.next().expect("the child goes on").expect("it writes text");
            seen += note(&line).map_or(0, |()| 1);
        }
        child.kill().expect("it runs");
        child.wait().expect("it is our child");
        // What it wrote between the last line read and its end.
        output.map_while(Result::ok).for_each(|line| _ = note(&line));
        let log = open(home.path(), 1);
        assert!(log.next_seq().0 > acknowledged, "{} <= {acknowledged}", log.next_seq());
        let mut last = log.first_seq().0 - 1;
        for item in log.read_from(log.first_seq()) {
            let (seq, found) = item.expect("the log is whole");
            assert_eq!(found, body(seq.0), "record {seq}");
            assert!(seq.0 == last + 1 || (seq.0 == last + 2 && seq.0 % 2 == 0) || last == 0);
            last = seq.0;
        }
        assert_eq!(last + 1, log.next_seq().0);
    }
}
