//! A series that is written to while it is let go is there once, and the log is cut as far as
//! blocks have what it holds.

use egret_log::InboxLimits;

use super::*;
use crate::core::index::Index;

fn core() -> Core {
    let limits =
        InboxLimits { items_name: "items", items_max: 10, bytes_name: "bytes", bytes_max: 1 << 20 };
    let shared = Arc::new(ShardShared {
        number: 0,
        inbox: egret_log::Inbox::new(limits),
        index: Index::default(),
        head_bytes: Default::default(),
        log_bytes: Default::default(),
        has_duplicate_series: Default::default(),
        failure: Default::default(),
    });
    Core::new(shared, Arc::new(RwLock::new(SeriesKeyTable::new(1))))
}

fn labels() -> Labels {
    Labels::new([("__name__", "m")])
}

/// A core with an empty series whose key was taken out.
fn core_with_removal() -> Core {
    let mut core = core();
    core.add_series(0, labels());
    core.series_in_removal = HashMap::from([(labels(), 0)]);
    remove_keys(&core);
    core
}

fn remove_keys(core: &Core) {
    let mut keys = core.series_keys.write().unwrap();
    let capacity = keys.capacity();
    assert_eq!(keys.remove_from_page(0, |place| place.number == 0), capacity);
    drop(keys);
    assert_eq!(known_number(core), None);
}

fn known_number(core: &Core) -> Option<u64> {
    let keys = core.series_keys.read().unwrap();
    keys.find_series(&labels()).map(|place| place.number)
}

fn write(core: &mut Core, number: u64) -> Outcome {
    let mut samples = SampleBatch::default();
    samples.push(number, 1, 1.0);
    core.append_samples(&samples)
}

#[test]
fn one_without_samples_goes() {
    let mut core = core_with_removal();
    assert_eq!(core.remove_empty(&[0]), [0]);
    assert_eq!(write(&mut core, 0).unknown_series, 1);
    assert_eq!(core.revive(&labels()), None);
}

#[test]
fn who_found_it_before_keeps_it() {
    let mut core = core_with_removal();
    assert_eq!(write(&mut core, 0).unknown_series, 0);
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(known_number(&core), Some(0));
}

#[test]
fn who_does_not_find_it_gets_the_same() {
    let mut core = core_with_removal();
    assert_eq!(core.revive(&labels()), Some(0));
    assert_eq!(known_number(&core), Some(0));
    // Its samples were refused meanwhile, for example because the disk is full.
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(known_number(&core), Some(0));
    assert_eq!(write(&mut core, 0).unknown_series, 0);
}

fn deletion(id: u64) -> Deletion {
    Deletion { id, matchers: Vec::new(), start: 0, end: 0 }
}

#[test]
fn whatever_records_an_append_ends_with_the_log_is_cut_near_what_blocks_have() {
    for step in [1, 2, 3, 63, 64, 65, 200] {
        for first in 1..=step {
            let mut core = core();
            for last in (first..=1_000).step_by(step as usize) {
                core.note_samples(Seq(last), &[last as i64]);
                core.note_bytes(10);
            }
            core.release_log(Seq(901), i64::MAX);
            let truncate_below = core.truncate_below.expect("something is cut").0;
            let cut_min = 901 - 2 * MARK_RECORDS.max(step);
            assert!(
                (cut_min..=901).contains(&truncate_below),
                "by {step} from {first}: {truncate_below}"
            );
            // What has samples that are not in blocks stays.
            core.release_log(Seq(1_001), 950);
            let cut = core.truncate_below.expect("something was cut").0;
            assert!(cut <= 950, "by {step} from {first}: {cut}");
        }
    }
}

#[test]
fn several_writes_of_one_append_have_one_mark() {
    let mut core = core();
    for _ in 0..10 {
        core.note_samples(Seq(2 * MARK_RECORDS), &[1]);
    }
    assert_eq!(core.marks.len(), 1);
}

#[test]
fn deletions_are_forgotten_with_their_records() {
    let mut core = core();
    for record in 1..=1_000 {
        core.apply_deletion(Seq(record), &deletion(record));
        core.note_samples(Seq(record), &[0]);
    }
    core.release_log(Seq(901), 1);
    assert!(!core.has_deletion(1));
    assert!(core.has_deletion(901) && core.has_deletion(1_000));
    assert!(core.deletions.len() < 250, "{}", core.deletions.len());
}

#[test]
fn one_whose_key_is_taken_out_once_more_is_still_the_same() {
    let mut core = core_with_removal();
    assert_eq!(core.revive(&labels()), Some(0));
    assert_eq!(write(&mut core, 0).unknown_series, 0);
    // Its key went to a place that had not been looked at.
    remove_keys(&core);
    assert_eq!(core.revive(&labels()), Some(0));
    remove_keys(&core);
    assert!(core.remove_empty(&[0]).is_empty());
    assert_eq!(known_number(&core), Some(0));
    assert!(core.series_in_removal.is_empty());
}

#[test]
fn an_older_number_of_a_series_goes_and_the_newer_stays() {
    let mut core = core();
    core.add_series(0, labels());
    core.add_renumbered_series(1, labels());
    core.series_in_removal = HashMap::from([(labels(), 0)]);
    assert_eq!(core.remove_empty(&[0]), [0]);
    assert_eq!(known_number(&core), Some(1));
}
