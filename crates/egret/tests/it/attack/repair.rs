//! Repair where some of the data can be neither examined nor mended: the rest is.

use std::process::Output;

use rustix::process::Signal;
use serde_json::Value;

use super::storage::{failed, flip_last_byte, newest_segment, place, stopped_with_tasks};
use crate::place::{Place, text};

/// What a repair prints that must fail because of `queue/000` alone.
fn repair_partly(place: &Place, arguments: &[&str]) -> String {
    let arguments = [&["repair"], arguments].concat();
    let Output { status, stdout, stderr } = place.run(&arguments);
    let (out, err) = (text(&stdout), text(&stderr));
    assert!(!status.success(), "{arguments:?}: {out}");
    for word in ["queue/000", "version 9"] {
        assert!(err.contains(word), "{arguments:?}: {out}{err}");
    }
    assert!(!err.contains("queue/001"), "{arguments:?}: {out}{err}");
    out
}

#[tokio::test]
async fn a_part_that_cannot_be_examined_keeps_no_other_one_from_its_repair() {
    let place = place("unexamined");
    stopped_with_tasks(&place).await;
    let (queue, series) = (place.data_dir().join("queue"), place.data_dir().join("series"));
    let later = queue.join("000/snapshot-ffffffffffffffff");
    std::fs::write(&later, b"EGRETQSN\x09\0\0\0").unwrap();
    flip_last_byte(&newest_segment(&queue.join("001/log")));
    flip_last_byte(&newest_segment(&series.join("000/log")));
    let listed = repair_partly(&place, &["--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let parts = |list: &str| -> Vec<String> {
        let items = listed[list].as_array().unwrap().iter();
        let part = |item: &Value| item["part"].as_str().unwrap().to_owned();
        items.map(part).collect()
    };
    assert_eq!(parts("items"), ["queue/001", "series/000"], "{listed}");
    assert_eq!(parts("failed"), ["queue/000"], "{listed}");
    let refused = place.run(&["repair", "queue/000", "--yes"]);
    let (out, err) = (text(&refused.stdout), text(&refused.stderr));
    assert!(!refused.status.success() && out.is_empty(), "{out}");
    assert!(err.contains("version 9"), "{err}");
    let mended = repair_partly(&place, &["queue/001", "--yes"]);
    assert!(mended.starts_with("queue/001\n"), "{mended}");
    assert!(!mended.contains("series/000"), "{mended}");
    let mended = repair_partly(&place, &["--yes"]);
    assert!(mended.starts_with("series/000\n"), "{mended}");
    assert!(later.exists());
    std::fs::remove_file(later).unwrap();
    let server = place.start(&["serve"]);
    assert_eq!(failed(&place).await, Vec::<String>::new());
    server.stop(Signal::TERM);
}
