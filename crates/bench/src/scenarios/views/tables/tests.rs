//! How many rows change.

use super::*;

#[test]
fn of_all_changes_seven_in_ten_are_updates_and_the_table_stays_as_large() {
    let changes = |rows, percent| {
        let Changes { updated, deleted, inserted } = Changes::from_percent(rows, percent);
        (updated, deleted, inserted)
    };
    assert_eq!(changes(100_000, 1.0), (700, 150, 150));
    assert_eq!(changes(100_000, 50.0), (35_000, 7_500, 7_500));
    assert_eq!(changes(1_000_000, 0.1), (700, 150, 150));
    assert_eq!(changes(100, 100.0), (70, 15, 15));
    // Too few to be split well, but as many.
    assert_eq!(changes(100, 2.0), (2, 0, 0));
    assert!(Changes::from_percent(100_000, 0.0).is_empty());
}
