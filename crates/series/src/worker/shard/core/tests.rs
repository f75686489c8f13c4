//! What of a log is still needed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use egret_log::{Inbox, InboxLimits};

use super::*;
use crate::core::index::Index;

fn core() -> Core {
    let shared = Shared {
        number: 0,
        inbox: Inbox::new(InboxLimits {
            items_name: "items",
            items_max: 1,
            bytes_name: "bytes",
            bytes_max: 1,
        }),
        index: Index::default(),
        head_bytes: AtomicU64::new(0),
        log_bytes: AtomicU64::new(0),
        has_twins: AtomicBool::new(false),
        failure: OnceLock::new(),
    };
    let known = Arc::new(RwLock::new(Known::new(1)));
    Core::new(Arc::new(shared), known)
}

fn deletion(id: u64) -> Deletion {
    Deletion {
        id,
        matchers: Vec::new(),
        start: 0,
        end: 0,
    }
}

#[test]
fn whatever_records_an_append_ends_with_the_log_is_cut_near_what_blocks_have() {
    for step in [1, 2, 3, 63, 64, 65, 200] {
        for first in 1..=step {
            let mut core = core();
            for last in (first..=1_000).step_by(step as usize) {
                core.note(Seq(last), &[last as i64]);
                core.note_bytes(10);
            }
            core.cut(Seq(901), i64::MAX);
            let cut = core.cut.expect("something is cut").0;
            let near = 901 - 2 * MARK_RECORDS.max(step);
            assert!((near..=901).contains(&cut), "by {step} from {first}: {cut}");
            // What has samples that are not in blocks stays.
            core.cut(Seq(1_001), 950);
            let cut = core.cut.expect("something was cut").0;
            assert!(cut <= 950, "by {step} from {first}: {cut}");
        }
    }
}

#[test]
fn several_writes_of_one_append_have_one_mark() {
    let mut core = core();
    for _ in 0..10 {
        core.note(Seq(2 * MARK_RECORDS), &[1]);
    }
    assert_eq!(core.marks.len(), 1);
}

#[test]
fn deletions_are_forgotten_with_their_records() {
    let mut core = core();
    for record in 1..=1_000 {
        core.delete(Seq(record), &deletion(record));
        core.note(Seq(record), &[0]);
    }
    core.cut(Seq(901), 1);
    assert!(!core.has_deletion(1));
    assert!(core.has_deletion(901) && core.has_deletion(1_000));
    assert!(core.deletions.len() < 250, "{}", core.deletions.len());
}
