//! What a shard keeps beside its blocks: records of its log, its checkpoint, a deletion that is
//! under way, and the replicas that are elected. What version 1 wrote is in `tests/golden` and must
//! be read for ever.
//!
//! `UPDATE_EXPECT=1` writes the files. That is for a new kind of record, and for a zstd that makes
//! something smaller of the same bytes; else none may change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use egret_blocks::core::BlockId;
use egret_log::simulated::SimulatedDisk;
use egret_log::{Disk, Seq};
use egret_metrics_model::{
    Buckets, CounterReset, Counts, Histogram, Labels, MatchOp, Matcher, STALE_NAN_BITS, Span,
};
use egret_series::core::record::{self, Deletion, HistogramBatch, Record, SampleBatch};
use egret_series::store::checkpoint::{Checkpoint, FlushWatermark};
use egret_series::store::deletion::{self, UnfinishedDeletion};
use egret_series::store::replicas;
use expect_test::{ExpectFile, expect_file};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text grows");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("it is ASCII");
        u8::from_str_radix(pair, 16).expect("two hexadecimal digits")
    };
    digits.map(byte).collect()
}

/// What each line of a golden file says: a name, then bytes.
fn lines(text: &str) -> impl Iterator<Item = (&str, Vec<u8>)> {
    let split = |line| str::split_once(line, ' ').expect("a name and bytes");
    text.lines().map(split).map(|(name, bytes)| (name, unhex(bytes)))
}

fn check(golden: ExpectFile, written: &[(&str, Vec<u8>)]) {
    let mut text = String::new();
    for (name, bytes) in written {
        writeln!(text, "{name} {}", hex(bytes)).expect("text grows");
    }
    golden.assert_eq(&text);
}

fn series() -> Vec<(u64, Labels)> {
    let up = Labels::new([("__name__", "up"), ("job", "golden")]);
    let odd = Labels::new([("__name__", "http.requests"), ("π", "\"=,\\\n")]);
    vec![(0, up), (1, odd), (300, Labels::new([("__name__", "m")]))]
}

fn samples() -> SampleBatch {
    let mut samples = SampleBatch::default();
    samples.push(300, 1_760_000_000_000, 1.5);
    samples.push(0, 1_760_000_000_000, f64::from_bits(STALE_NAN_BITS));
    samples.push(1, 1_759_999_985_000, f64::NEG_INFINITY);
    samples.push(1, -1, -0.0);
    samples
}

fn histograms() -> HistogramBatch {
    let buckets = |length, counts| Buckets { spans: vec![Span { offset: -3, length }], counts };
    let none = || Buckets { spans: Vec::new(), counts: Counts::Float(Vec::new()) };
    let integer = Histogram {
        schema: 3,
        zero_threshold: 1e-128,
        zero_count: 1.0,
        count: 8.0,
        integer_counts: Some((1, 8)),
        sum: 2.25,
        positive: buckets(2, Counts::Integer(vec![3, 4])),
        negative: buckets(0, Counts::Integer(Vec::new())),
        custom_bounds: Arc::new([]),
        counter_reset: CounterReset::NotReset,
    };
    let custom = Histogram {
        schema: -53,
        zero_threshold: 0.0,
        zero_count: 0.0,
        count: 2.5,
        integer_counts: None,
        sum: -1.0,
        positive: buckets(1, Counts::Float(vec![2.5])),
        negative: none(),
        custom_bounds: Arc::new([0.5, 10.0]),
        counter_reset: CounterReset::Gauge,
    };
    let mut batch = HistogramBatch::default();
    batch.push(1, 1_760_000_000_000, Arc::new(integer));
    batch.push(2, 1_760_000_015_000, Arc::new(custom));
    batch
}

fn a_deletion() -> Deletion {
    let matcher =
        |name: &str, op, value: &str| Matcher { name: name.into(), op, value: value.into() };
    Deletion {
        id: 0xfeed_beef,
        matchers: vec![
            matcher("__name__", MatchOp::Equal, "up"),
            matcher("job", MatchOp::NotEqual, ""),
            matcher("host", MatchOp::Matches, "a.*|b"),
            matcher("π", MatchOp::NotMatches, "1"),
        ],
        start: i64::MIN,
        end: 1_760_000_000_000,
    }
}

#[test]
fn records_of_the_log_are_written_as_ever_and_read() {
    let (all, samples, histograms) = (series(), samples(), histograms());
    let keys = all.iter().map(|(number, labels)| (*number, labels.as_key().as_bytes()));
    let mut written = [
        ("series", Vec::new()),
        ("samples", Vec::new()),
        ("histograms", Vec::new()),
        ("deletion", Vec::new()),
    ];
    record::put_series(&mut written[0].1, keys.clone());
    record::put_samples(&mut written[1].1, &samples);
    record::put_histograms(&mut written[2].1, &histograms);
    record::put_deletion(&mut written[3].1, &a_deletion());
    for (bytes, kind) in written.iter().zip(1..) {
        assert_eq!(bytes.1[0], kind, "a kind has no golden record");
    }
    check(expect_file!["../golden/records-v1.txt"], &written);
    let mut columns = SampleBatch::default();
    let golden: Vec<_> = lines(include_str!("../golden/records-v1.txt")).collect();
    let read = |columns: &mut SampleBatch, at: usize| match record::decode(&golden[at].1, columns) {
        Ok(read) => format!("{read:?}"),
        Err(error) => panic!("{} is not read: {error}", golden[at].0),
    };
    let shown = |record: Record<'_>| format!("{record:?}");
    assert_eq!(read(&mut columns, 0), shown(Record::Series(keys.collect())));
    assert_eq!(read(&mut columns, 1), shown(Record::Samples));
    assert_eq!(columns, samples);
    assert_eq!(read(&mut columns, 2), shown(Record::Histograms(histograms)));
    assert_eq!(read(&mut columns, 3), shown(Record::Deletion(a_deletion())));
    assert!(record::decode(&[5], &mut columns).is_err(), "a new kind has no golden record");
}

const CHECKPOINT: &str = "checkpoint-0000000000000123";
const DELETION: &str = "deletion";

fn on_disk(golden: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1 << 20);
    for (name, bytes) in lines(golden) {
        disk.create(name).expect("the disk is empty");
        disk.overwrite(name, bytes);
    }
    disk
}

#[test]
fn a_checkpoint_is_written_as_ever_and_read() {
    let checkpoint = Checkpoint {
        next_seq: Seq(0x123),
        flush_watermark: FlushWatermark { seq: Seq(0x120), end: 1_760_000_000_000 },
        next_number: 301,
        series: series(),
    };
    let disk = SimulatedDisk::new(1 << 20);
    checkpoint.write(&disk).expect("it is written");
    let written = disk.content(CHECKPOINT).expect("it is there");
    check(expect_file!["../golden/checkpoint-v1.txt"], &[(CHECKPOINT, written)]);
    let disk = on_disk(include_str!("../golden/checkpoint-v1.txt"));
    let read = Checkpoint::read(&disk).expect("version 1 is read");
    assert_eq!(read, Some(checkpoint));
}

#[test]
fn a_deletion_that_is_under_way_is_written_as_ever_and_read() {
    let under_way =
        UnfinishedDeletion { deletion: a_deletion(), blocks: vec![BlockId(1), BlockId(0x1234)] };
    let disk = SimulatedDisk::new(1 << 20);
    deletion::write_unfinished(&disk, &under_way).expect("it is written");
    let written = disk.content(DELETION).expect("it is there");
    check(expect_file!["../golden/deletion-v1.txt"], &[(DELETION, written)]);
    let disk = on_disk(include_str!("../golden/deletion-v1.txt"));
    let read = deletion::read_unfinished(&disk).expect("version 1 is read");
    assert_eq!(read, Some(under_way));
}

#[test]
fn elected_replicas_are_written_as_ever_and_read() {
    let elected: BTreeMap<Box<str>, Box<str>> =
        [("eu".into(), "prometheus-0".into()), ("π \"us\"".into(), "b".into())].into();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("replicas");
    replicas::write(directory.path(), &elected).expect("it is written");
    let written = std::fs::read_to_string(&path).expect("it is there");
    expect_file!["../golden/replicas-v1.json"].assert_eq(&written);
    std::fs::write(&path, include_str!("../golden/replicas-v1.json")).expect("there is room");
    let read = replicas::read(directory.path()).expect("version 1 is read");
    assert_eq!(read, elected);
}
