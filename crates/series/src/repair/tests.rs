//! Which checkpoints a repair takes for damaged.

use std::path::PathBuf;

use egret_base::parts;
use egret_blocks::core::frame::put_frame;
use tempfile::TempDir;

use super::*;

/// A series directory with one shard, and the path of the shard's checkpoint, which is not made.
fn make_shard() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().expect("a directory");
    parts::write_count(place.path(), "shards", 1).expect("it is written");
    fs::create_dir(place.path().join("000")).expect("it is made");
    let checkpoint = place.path().join("000/checkpoint-0000000000000009");
    (place, checkpoint)
}

/// The head of a checkpoint, with what follows it left out.
fn checkpoint_header(version: u8) -> Vec<u8> {
    let mut frame = Vec::new();
    put_frame(&mut frame, &[version, 1, 0, 0]);
    let length = u32::try_from(frame.len()).expect("it is short");
    [&length.to_le_bytes()[..], &frame].concat()
}

/// The reason for which the shard is neither examined nor repaired. It is left as it is.
fn expect_refusal(place: &TempDir, checkpoint: &Path) -> String {
    let repaired = repair(place.path(), "000", "now");
    let error = repaired.expect_err("it is not repaired").to_string();
    assert!(checkpoint.exists(), "{error}");
    let examination = examine(place.path());
    let unexamined = examination.unexamined.iter();
    let reasons: Vec<(&str, String)> =
        unexamined.map(|part| (part.part.as_str(), part.error.to_string())).collect();
    assert_eq!(reasons, [("series/000", error.clone())]);
    assert!(examination.findings.is_empty(), "{examination:?}");
    error
}

#[test]
fn a_checkpoint_of_a_later_version_is_not_repaired() {
    let (place, checkpoint) = make_shard();
    fs::write(&checkpoint, checkpoint_header(9)).expect("it is written");
    let error = expect_refusal(&place, &checkpoint);
    assert!(error.contains("has format version 9"), "{error}");
}

#[test]
fn a_checkpoint_that_cannot_be_read_for_now_is_not_repaired() {
    let (place, checkpoint) = make_shard();
    // The superuser can read every file, but no directory as one.
    fs::create_dir(&checkpoint).expect("it is made");
    let error = expect_refusal(&place, &checkpoint);
    assert!(error.contains("checkpoint-0000000000000009"), "{error}");
}

#[test]
fn a_damaged_checkpoint_is_repaired() {
    let (place, checkpoint) = make_shard();
    fs::write(&checkpoint, checkpoint_header(1)).expect("it is written");
    let finding =
        repair(place.path(), "000", "now").expect("it is repaired").expect("it was damaged");
    assert!(finding.problem.contains("cannot be read"), "{finding:?}");
    assert_eq!(finding.action, "create it empty");
    let kept = "000.damaged-now/checkpoint-0000000000000009";
    assert!(place.path().join(kept).exists());
}
