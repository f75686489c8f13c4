//! Changes of edge rows.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn numbers<const COUNT: usize>(numbers: [i64; COUNT]) -> Vec<DocumentNumber> {
    numbers.map(DocumentNumber).to_vec()
}

#[test]
fn remaining_targets_keep_their_positions() {
    let before = numbers([1, 2, 3, 4, 5, 6, 7, 8]);
    // One target replaced by another.
    let after = numbers([1, 2, 3, 4, 5, 6, 8, 9]);
    let order = assign_slots(&before, &after);
    assert_eq!(order, numbers([1, 2, 3, 4, 5, 6, 9, 8]));
    let (deleted, inserted) = changed_rows(&before, &order);
    assert_eq!(deleted, [numbers([5, 6, 7, 8])]);
    assert_eq!(inserted, [numbers([5, 6, 9, 8])]);
    // Fewer targets: the last ones fill the freed positions.
    assert_eq!(
        assign_slots(&before, &numbers([2, 3, 4, 5, 6, 7, 8])),
        numbers([8, 2, 3, 4, 5, 6, 7])
    );
    assert!(assign_slots(&before, &[]).is_empty());
    // More targets than before.
    let more = assign_slots(&numbers([2]), &numbers([1, 2, 3]));
    assert_eq!(more, numbers([2, 1, 3]));
    assert_eq!(assign_slots(&[], &numbers([1, 2])), numbers([1, 2]));
}

#[test]
fn rows_that_are_alike_are_not_written() {
    let all = numbers([1, 2, 3, 4, 5]);
    assert_eq!(changed_rows(&all, &all), (vec![], vec![]));
    let (deleted, inserted) = changed_rows(&all, &all[..4]);
    assert_eq!((deleted, inserted), (vec![&all[4..]], vec![]));
    let (deleted, inserted) = changed_rows(&[], &all);
    assert_eq!((deleted, inserted), (vec![], vec![&all[..4], &all[4..]]));
}

proptest! {
    #[test]
    fn all_are_noted_once_and_no_more_rows_change_than_targets(
        before in prop::collection::btree_set(0_i64..40, 0..20),
        between in prop::collection::btree_set(0_i64..40, 0..20),
        after in prop::collection::btree_set(0_i64..40, 0..20),
    ) {
        let sorted = |set: &BTreeSet<i64>| set.iter().copied().map(DocumentNumber).collect::<Vec<_>>();
        let before = assign_slots(&sorted(&before), &sorted(&between));
        let order = assign_slots(&before, &sorted(&after));
        prop_assert_eq!(order.len(), after.len());
        let after: BTreeSet<DocumentNumber> = sorted(&after).into_iter().collect();
        prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), after.clone());
        let (gone, new) = changed_rows(&before, &order);
        let came = after.iter().filter(|target| !before.contains(target)).count();
        let went = before.iter().filter(|target| !after.contains(target)).count();
        // A freed position may be filled from the last row.
        prop_assert!(new.len() <= came + went);
        prop_assert!(gone.len() <= came + 2 * went);
        let mut rows: BTreeSet<&[DocumentNumber]> = before.chunks(EDGE_ROW_WIDTH).collect();
        for row in gone {
            prop_assert!(rows.remove(row));
        }
        for row in new {
            prop_assert!(rows.insert(row));
        }
        prop_assert_eq!(rows, order.chunks(EDGE_ROW_WIDTH).collect());
    }
}
