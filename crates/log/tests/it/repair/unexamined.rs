//! A part that cannot be examined: the others are.

use std::io;
use std::sync::Arc;

use egret_base::parts::write_count;
use egret_log::repair::Parts;

use super::*;

/// The snapshot of part 000 cannot be read.
fn unreadable_in_000(directory: &Path) -> Result<Snapshots, LogError> {
    if directory.ends_with("000") {
        return Err(LogError::Io {
            action: "read",
            file: "snapshot-1".to_owned(),
            source: Arc::new(io::Error::other("it has version 9")),
        });
    }
    Ok(snapshot_before(Seq::FIRST))
}

#[test]
fn a_part_that_cannot_be_examined_keeps_no_other_one_from_its_repair() {
    let place = tempfile::tempdir().expect("a directory");
    write(place.path());
    fs::create_dir(place.path().join("000")).expect("it is made");
    write_count(place.path(), "partitions", 2).expect("it is written");
    flip_record(place.path(), RECORDS);
    let parts = Parts {
        count_file: CountFile { engine: "queue", directory: place.path(), name: "partitions" },
        record_content: "changes",
        log_only_content: "payloads",
        reads_all: false,
        part_content: "all tasks",
        snapshots: unreadable_in_000,
    };
    let examination = parts.examine();
    let [unexamined] = examination.unexamined.as_slice() else {
        panic!("one part cannot be examined: {examination:?}");
    };
    assert_eq!(unexamined.part, "queue/000");
    let reason = unexamined.error.to_string();
    assert!(reason.contains("it has version 9"), "{reason}");
    let [finding] = examination.findings.as_slice() else {
        panic!("one part is damaged: {examination:?}");
    };
    assert_eq!(finding.part, "queue/001");
    assert!(parts.repair("000", "now").is_err());
    let mended = parts.repair("001", "now").expect("it is mended");
    assert_eq!(mended.as_ref(), Some(finding));
    assert!(parts.examine().findings.is_empty());
}
