//! Rows of edges that change as little as they can.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn what_stays_keeps_its_place() {
    let before = [1, 2, 3, 4, 5, 6, 7, 8];
    // One for another.
    let after = [1, 2, 3, 4, 5, 6, 8, 9];
    let order = arranged(&before, &after);
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 9, 8]);
    let (gone, new) = changed(&before, &order);
    assert_eq!(
        (gone, new),
        (vec![&[5, 6, 7, 8][..]], vec![&[5, 6, 9, 8][..]])
    );
    // Fewer: the last take the places of what goes.
    assert_eq!(
        arranged(&before, &[2, 3, 4, 5, 6, 7, 8]),
        [8, 2, 3, 4, 5, 6, 7]
    );
    assert!(arranged(&before, &[]).is_empty());
    // More.
    assert_eq!(arranged(&[2], &[1, 2, 3]), [2, 1, 3]);
    assert_eq!(arranged(&[], &[1, 2]), [1, 2]);
}

#[test]
fn rows_that_are_alike_are_not_written() {
    let all = [1, 2, 3, 4, 5];
    assert_eq!(changed(&all, &all), (vec![], vec![]));
    let (gone, new) = changed(&all, &all[..4]);
    assert_eq!((gone, new), (vec![&[5][..]], vec![]));
    let (gone, new) = changed(&[], &all);
    assert_eq!((gone, new), (vec![], vec![&[1, 2, 3, 4][..], &[5][..]]));
}

proptest! {
    #[test]
    fn all_are_noted_once_and_no_more_rows_change_than_targets(
        before in prop::collection::btree_set(0_i64..40, 0..20),
        between in prop::collection::btree_set(0_i64..40, 0..20),
        after in prop::collection::btree_set(0_i64..40, 0..20),
    ) {
        let sorted = |set: &BTreeSet<i64>| set.iter().copied().collect::<Vec<_>>();
        let before = arranged(&sorted(&before), &sorted(&between));
        let order = arranged(&before, &sorted(&after));
        prop_assert_eq!(order.len(), after.len());
        prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), after.clone());
        let (gone, new) = changed(&before, &order);
        let came = after.iter().filter(|target| !before.contains(target)).count();
        let went = before.iter().filter(|target| !after.contains(target)).count();
        // What goes may be filled by one from the last row.
        prop_assert!(new.len() <= came + went);
        prop_assert!(gone.len() <= came + 2 * went);
        let mut rows: BTreeSet<&[i64]> = before.chunks(WIDTH).collect();
        for row in gone {
            prop_assert!(rows.remove(row));
        }
        for row in new {
            prop_assert!(rows.insert(row));
        }
        prop_assert_eq!(rows, order.chunks(WIDTH).collect());
    }
}
