//! Bytes that Egret did not write: readers refuse them or read something, and never panic.

use std::path::PathBuf;

use egret_log::simulated::SplitMix64;
use egret_queue::core::command::{Command, Enqueue};
use egret_queue::core::state::State;
use egret_queue::model::{Lease, QueueSettings, TaskId};
use egret_queue::testing::content::{self, Content};
use egret_queue::testing::{record, snapshot};

const ROUNDS: usize = 20_000;

/// What is read can be written, and is then read again as the same.
fn read_record(bytes: &[u8]) {
    let Ok(command) = record::decode(bytes) else {
        return;
    };
    if format!("{command:?}").contains("NaN") {
        return;
    }
    let mut again = Vec::new();
    record::encode(&command, &mut again);
    assert_eq!(record::decode(&again), Ok(command));
}

fn read_content(bytes: &[u8]) {
    let _ = content::split(bytes);
    let _ = content::decode_private(bytes);
    assert!(content::tags(bytes).count() <= bytes.len());
    let Ok(content) = content::decode(bytes) else {
        return;
    };
    let mut again = Vec::new();
    content::encode(&mut again, &content);
    assert_eq!(content::decode(&again), Ok(content));
}

#[test]
fn records_that_nobody_wrote() {
    let mut chance = SplitMix64::new(1);
    let mut samples: Vec<Vec<u8>> = Vec::new();
    let golden = include_str!("../golden/records-v1.txt");
    for line in golden.lines() {
        let hex = line.split(' ').nth(1).expect("a name and a record");
        let digits = hex.as_bytes().chunks(2);
        let bytes = digits.map(|two| {
            let two = std::str::from_utf8(two).expect("digits are ASCII");
            u8::from_str_radix(two, 16).expect("digits are hexadecimal")
        });
        samples.push(bytes.collect());
    }
    for round in 0..ROUNDS {
        let mut bytes = samples[round % samples.len()].clone();
        chance.damage(&mut bytes);
        read_record(&bytes);
        let mut bytes = chance.next_bytes(60);
        if let Some(kind) = bytes.first_mut() {
            *kind %= 26;
        }
        read_record(&bytes);
    }
}

#[test]
fn contents_that_nobody_wrote() {
    let mut chance = SplitMix64::new(2);
    let mut sample = Vec::new();
    let whole = Content {
        payload: b"payload",
        ordering_key: "key",
        metadata: [("name", "value")].into(),
        traceparent: "00-01",
        ..Content::default()
    };
    content::encode(&mut sample, &whole);
    for _ in 0..ROUNDS {
        let mut bytes = sample.clone();
        chance.damage(&mut bytes);
        read_content(&bytes);
        read_content(&chance.next_bytes(40));
    }
}

#[test]
fn leases_and_ids_that_nobody_gave() {
    let mut chance = SplitMix64::new(3);
    for _ in 0..ROUNDS {
        let bytes = chance.next_bytes(20);
        if let Some(lease) = Lease::from_bytes(&bytes) {
            assert_eq!(lease.to_bytes(), *bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = text.parse::<TaskId>();
        let mut text = TaskId::new(1, 2, 3, 4).to_string().into_bytes();
        chance.damage(&mut text);
        let _ = String::from_utf8_lossy(&text).parse::<TaskId>();
    }
}

/// Also when the checksums are right: a snapshot that is not one is an error.
#[test]
fn snapshots_that_nobody_wrote() {
    let mut state = State::default();
    let settings = Box::new(QueueSettings::default());
    let put = Command::PutQueue { queue: 1, tenant: "t", name: "q", settings };
    state.apply(1, &put).expect("a queue can be put");
    let task = Enqueue { queue: 1, key: 7, tags: b"b\x01x", ..Enqueue::default() };
    for seq in 2..10 {
        let command = Command::Enqueue(task.clone());
        state.apply(seq, &command).expect("the queue is there");
    }
    let mut whole = Vec::new();
    let seq = egret_log::Seq(10);
    snapshot::write_to(&mut whole, seq, &state.take_snapshot(), &mut |_| {})
        .expect("memory is large");
    let mut chance = SplitMix64::new(4);
    for _ in 0..ROUNDS / 10 {
        let mut bytes = whole.clone();
        chance.damage(&mut bytes);
        let read = snapshot::read_from(&*bytes, PathBuf::from("memory"));
        assert!(read.is_err() || bytes.starts_with(&whole[..whole.len() - 8]));
        // One block, with a new checksum.
        let mut block = whole[20..whole.len() - 8].to_vec();
        chance.damage(&mut block);
        let mut bytes = whole[..12].to_vec();
        bytes.extend_from_slice(&(block.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&block).to_le_bytes());
        bytes.extend_from_slice(&block);
        bytes.extend_from_slice(&[0; 8]);
        let _ = snapshot::read_from(&*bytes, PathBuf::from("memory"));
    }
}
