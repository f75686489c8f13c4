//! When tenants are measured, which branch is stopped, and ranges.

use egret_base::Timestamp;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn id(number: u8) -> BranchId {
    BranchId::new(Timestamp::from_micros(0), [number; 10])
}

fn disk(branches: &[(u8, u64)]) -> TenantDisk {
    TenantDisk {
        uncounted: std::collections::BTreeMap::new(),
        bytes: branches.iter().map(|(_, bytes)| bytes).sum(),
        branches: branches.iter().map(|(number, bytes)| (id(*number), *bytes)).collect(),
    }
}

fn tenants(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_tenant_is_measured_when_what_was_written_could_take_it_over_its_limit() {
    let mut disks = TenantDisks::default();
    disks.note_free(1_000 * MIB);
    assert!(disks.is_due("one", 100 * MIB), "it never was");
    disks.record("one", disks.written(), disk(&[(1, 40 * MIB)]), 100 * MIB);
    assert!(!disks.is_due("one", 100 * MIB));
    disks.note_free(941 * MIB);
    assert!(!disks.is_due("one", 100 * MIB));
    // What others give back hides nothing of what was written.
    disks.note_free(990 * MIB);
    disks.note_free(989 * MIB);
    assert!(disks.is_due("one", 100 * MIB));
    assert!(!disks.is_due("one", 200 * MIB), "another limit");
    disks.record("one", disks.written(), disk(&[(1, 99 * MIB)]), 100 * MIB);
    disks.note_free(988 * MIB);
    assert!(!disks.is_due("one", 100 * MIB), "not for each byte");
    disks.note_free(973 * MIB);
    assert!(disks.is_due("one", 100 * MIB));
    disks.note_tenants(disks.written(), tenants(&["two"]));
    assert_eq!(disks.bytes_of("one"), 0);
}

#[test]
fn a_new_tenant_has_no_more_than_was_written_since_it_was_missing() {
    let mut disks = TenantDisks::default();
    let limit = 100 * MIB;
    disks.note_free(1_000 * MIB);
    disks.note_tenants(disks.written(), tenants(&["old"]));
    assert!(disks.is_due("old", limit), "it may have anything");
    disks.note_free(950 * MIB);
    disks.note_tenants(disks.written(), tenants(&["new", "old"]));
    assert!(!disks.is_due("new", limit));
    assert!(disks.is_due("old", limit), "it was not measured yet");
    disks.note_free(901 * MIB);
    assert!(!disks.is_due("new", limit));
    disks.note_free(900 * MIB);
    assert!(disks.is_due("new", limit), "all may be its own");
    let measured = disk(&[(1, 101 * MIB), (2, MIB)]);
    let stopped = disks.record("new", disks.written(), measured, limit);
    assert_eq!(stopped, Some(id(1)), "it had nothing before");
    // One that goes and comes again, as between two bursts.
    disks.note_tenants(disks.written(), tenants(&["old"]));
    disks.note_free(850 * MIB);
    disks.note_tenants(disks.written(), tenants(&["new", "old"]));
    assert_eq!(disks.bytes_of("new"), 0);
    assert!(!disks.is_due("new", limit) && !disks.is_full("new"));
    disks.note_free(800 * MIB);
    assert!(disks.is_due("new", limit));
}

#[test]
fn of_a_tenant_over_its_limit_the_branch_that_grew_most_is_stopped() {
    let mut disks = TenantDisks::default();
    let limit = 100 * MIB;
    let mut record =
        |tenant: &str, branches: &[(u8, u64)]| disks.record(tenant, 0, disk(branches), limit);
    assert_eq!(record("one", &[(1, 70 * MIB), (2, MIB)]), None);
    assert_eq!(record("other", &[(3, MIB)]), None);
    assert_eq!(record("one", &[(1, 72 * MIB), (2, 20 * MIB)]), None);
    assert_eq!(record("other", &[(3, 90 * MIB)]), None, "it is within");
    let stopped = record("one", &[(1, 73 * MIB), (2, 40 * MIB)]);
    assert_eq!(stopped, Some(id(2)), "not the largest");
    assert_eq!(record("one", &[(1, 73 * MIB), (2, 40 * MIB)]), None, "none grows");
    let stopped = record("one", &[(1, 73 * MIB), (2, 40 * MIB), (4, 9 * MIB)]);
    assert_eq!(stopped, Some(id(4)), "a new one");
    assert_eq!(disks.bytes_of("one"), 122 * MIB);
}

#[test]
fn a_tenant_that_is_over_its_limit_at_the_start_is_known_before_a_branch_is_stopped() {
    let mut disks = TenantDisks::default();
    assert_eq!(disks.record("one", 0, disk(&[(1, 200)]), 100), None);
    assert_eq!(disks.bytes_of("one"), 200);
    assert!(disks.is_full("one") && !disks.is_full("other"));
}

#[test]
fn a_branch_of_which_not_all_is_counted_takes_no_less_than_before() {
    let mut disks = TenantDisks::default();
    let limit = 100 * MIB;
    let hidden = |branches: &[(u8, u64)]| {
        let mut disk = disk(branches);
        disk.uncounted.insert(id(1), "closed".to_owned());
        disk
    };
    disks.record("one", 0, disk(&[(1, 70 * MIB), (2, 20 * MIB)]), limit);
    let within = hidden(&[(1, 5 * MIB), (2, 25 * MIB)]);
    assert_eq!(disks.record("one", 0, within, limit), None);
    assert_eq!(disks.bytes_of("one"), 95 * MIB);
    let over = hidden(&[(1, 5 * MIB), (2, 40 * MIB)]);
    assert_eq!(disks.record("one", 0, over, limit), Some(id(2)));
    assert_eq!(disks.bytes_of("one"), 110 * MIB);
    disks.record("one", 0, disk(&[(1, 5 * MIB), (2, 25 * MIB)]), limit);
    assert_eq!(disks.bytes_of("one"), 30 * MIB, "all is counted again");
}

proptest! {
    #[test]
    fn ranges_count_each_byte_once(added in prop::collection::vec((0_u64..200, 0_u64..40), 0..40)) {
        let mut ranges = Ranges::default();
        let mut bytes = std::collections::BTreeSet::new();
        for (start, length) in added {
            let new = (start..start + length).filter(|byte| bytes.insert(*byte)).count();
            prop_assert_eq!(ranges.add(start, length), new as u64);
        }
        let total: u64 = ranges.ends.iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(total, bytes.len() as u64);
    }
}
