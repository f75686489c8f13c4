//! A snapshot that is damaged: whether an older state and the log stand for it.

use egret_log::Compaction;
use egret_log::repair::OlderState;

use super::*;

/// A snapshot of all records below `reached` that is damaged, and what it can be replaced by.
fn damaged_snapshot(replay_from: Seq, reached: Seq) -> Snapshots {
    Snapshots {
        replay_from: Err("snapshot-new is damaged".to_owned()),
        older: Some(OlderState { replay_from, left_out: vec!["snapshot-new".to_owned()], reached }),
    }
}

#[test]
fn a_damaged_snapshot_is_left_out_where_the_log_has_everything_since_an_older_state() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    for name in ["snapshot-old", "snapshot-new"] {
        fs::write(place.path().join("001").join(name), name).expect("it is written");
    }
    let part = Part { snapshots: damaged_snapshot(Seq(4), Seq(RECORDS + 1)), ..part(place.path()) };
    let finding = part.examine().expect("it is examined").expect("it is damaged");
    assert_eq!(finding.problem, "snapshot-new is damaged");
    assert_eq!(
        finding.action,
        "leave out snapshot-new: the snapshot before record 4 and the log have its whole content"
    );
    assert_eq!(finding.loss, "nothing");
    let segment = "log/00000000000000000001.log";
    let original = fs::read(place.path().join("001").join(segment)).ok();
    let mended = part.repair("now").expect("it is mended");
    assert_eq!(mended, Some(finding));
    let mut log = open(place.path());
    assert_eq!(log.next_seq(), Seq(RECORDS + 1));
    let mut batch = Batch::new();
    batch.push(b"another");
    let appended = log.append(&mut batch, Seq(RECORDS + 1));
    assert_eq!(appended.expect("the disk works"), AppendResult::Committed(Seq(RECORDS + 1)));
    drop(log);
    let (repaired, kept) = (place.path().join("001"), place.path().join("001.damaged-now"));
    let names = ["snapshot-old", "snapshot-new"];
    let in_repaired = names.map(|name| repaired.join(name).exists());
    assert_eq!(in_repaired, [true, false]);
    assert_eq!(names.map(|name| kept.join(name).exists()), [true, true]);
    assert!(fs::read(kept.join(segment)).ok() == original, "the original has changed");
}

/// The log is an older copy, or was cut off: it ends before what the damaged snapshot had.
#[test]
fn records_that_only_the_damaged_snapshot_had_are_named_as_lost() {
    for (replay_from, kept_by) in
        [(Seq::FIRST, "the log has"), (Seq(4), "the snapshot before record 4 and the log have")]
    {
        let place = tempfile::tempdir().expect("a directory");
        write(place.path());
        let part = Part { snapshots: damaged_snapshot(replay_from, Seq(20)), ..part(place.path()) };
        let finding = part.examine().expect("it is examined").expect("it is damaged");
        let content = "its content before record 10";
        assert_eq!(finding.action, format!("leave out snapshot-new: {kept_by} {content}"));
        assert_eq!(finding.loss, "10 records (changes), numbers 10 to 19");
        let mended = part.repair("now").expect("it is mended");
        assert_eq!(mended, Some(finding));
        assert_eq!(open(place.path()).next_seq(), Seq(RECORDS + 1));
    }
}

#[test]
fn a_damaged_snapshot_loses_everything_where_the_log_does_not_stand_for_it() {
    let place = tempfile::tempdir().expect("a directory");
    let log_path = place.path().join("001/log");
    let disk = Directory::open(&log_path).expect("the directory opens");
    let opened = FileLog::open(disk, small_config(), Seq::FIRST);
    let mut log = opened.expect("it opens").0;
    fill(&mut log, 8);
    let sealed = log.segments()[0];
    assert_eq!((sealed.first, sealed.last), (Seq(1), Seq(2)));
    let compaction = log.prepare_compaction(sealed.first, sealed.last);
    let compacted =
        compaction.expect("it is sealed").run(|seq| seq == Seq(1)).expect("the disk works");
    assert!(log.finish_compaction(compacted).expect("the log runs"));
    drop(log);
    // A record before the older state is gone, as it may be; then one that would have to be
    // replayed.
    for (from, is_whole) in [(Seq(3), true), (Seq::FIRST, false)] {
        let part = Part { snapshots: damaged_snapshot(from, Seq(8)), ..part(place.path()) };
        let finding = part.examine().expect("it is examined").expect("it is damaged");
        let loss = if is_whole { "nothing" } else { "everything in it, all tasks" };
        assert_eq!(finding.loss, loss, "{from}");
    }
}
