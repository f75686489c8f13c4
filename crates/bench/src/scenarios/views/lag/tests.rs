//! When rows are seen.

use super::*;

#[test]
fn a_row_is_seen_at_the_first_look_that_counts_it() {
    let at = Duration::from_millis;
    let looks = [(at(10), 0), (at(20), 2), (at(30), 2), (at(40), 5)];
    let expected = [20, 20, 40, 40, 40].map(|ms| Some(at(ms)));
    assert_eq!(first_seen_times(5, &looks), expected);
    // The sixth never was.
    assert_eq!(first_seen_times(6, &looks).last(), Some(&None));
    assert_eq!(first_seen_times(0, &looks), []);
}
