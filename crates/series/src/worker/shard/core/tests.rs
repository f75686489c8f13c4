//! A series that is written to while it is let go is there once, and the log is cut as far as
//! blocks have what it holds.

use egret_log::InboxLimits;

use super::*;
use crate::core::index::Index;

fn core() -> Core {
    let limits = InboxLimits {
        items_name: "items",
        items_max: 10,
        bytes_name: "bytes",
        bytes_max: 1 << 20,
    };
    let shared = Arc::new(ShardShared {
        number: 0,
        inbox: egret_log::Inbox::new(limits),
        index: Index::default(),
        head_bytes: Default::default(),
        log_bytes: Default::default(),
        has_twins: Default::default(),
        failure: Default::default(),
    });
    Core::new(shared, Arc::new(RwLock::new(SeriesKeyTable::new(1))))
}

fn labels() -> Labels {
    Labels::new([("__name__", "m")])
}

/// A core with an empty series whose key was taken out.
fn letting_go() -> Core {
    let mut core = core();
    core.add(0, labels());
    core.leaving = HashMap::from([(labels(), 0)]);
    take_keys_out(&core);
    core
}

fn take_keys_out(core: &Core) {
    let mut known = core.known.write().unwrap();
    let capacity = known.capacity();
    assert_eq!(known.remove_some(0, |place| place.number == 0), capacity);
    drop(known);
    assert_eq!(number(core), None);
}

fn number(core: &Core) -> Option<u64> {
    let known = core.known.read().unwrap();
    known.series(&labels()).map(|place| place.number)
}

fn write(core: &mut Core, number: u64) -> Outcome {
    let mut samples = SampleBatch::default();
    samples.push(number, 1, 1.0);
    core.take(&samples)
}

#[test]
fn one_without_samples_goes() {
    let mut core = letting_go();
    assert_eq!(core.remove_empty(&[0]), [0]);
    assert_eq!(write(&mut core, 0).nowhere, 1);
    assert_eq!(core.revive(&labels()), None);
}

#[test]
fn who_found_it_before_keeps_it() {
    let mut core = letting_go();
    assert_eq!(write(&mut core, 0).nowhere, 0);
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(number(&core), Some(0));
}

#[test]
fn who_does_not_find_it_gets_the_same() {
    let mut core = letting_go();
    assert_eq!(core.revive(&labels()), Some(0));
    assert_eq!(number(&core), Some(0));
    // Its samples were refused meanwhile, for example because the disk is full.
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(number(&core), Some(0));
    assert_eq!(write(&mut core, 0).nowhere, 0);
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

#[test]
fn one_whose_key_is_taken_out_once_more_is_still_the_same() {
    let mut core = letting_go();
    assert_eq!(core.revive(&labels()), Some(0));
    assert_eq!(write(&mut core, 0).nowhere, 0);
    // Its key went to a place that had not been looked at.
    take_keys_out(&core);
    assert_eq!(core.revive(&labels()), Some(0));
    take_keys_out(&core);
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(number(&core), Some(0));
    assert!(core.leaving.is_empty());
}

#[test]
fn an_older_number_of_a_series_goes_and_the_newer_stays() {
    let mut core = core();
    core.add(0, labels());
    core.add_again(1, labels());
    core.leaving = HashMap::from([(labels(), 0)]);
    assert_eq!(core.remove_empty(&[0]), [0]);
    assert_eq!(number(&core), Some(1));
}
