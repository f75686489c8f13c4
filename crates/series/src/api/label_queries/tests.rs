//! No more is kept than is wanted.

use super::*;

fn sorted_results(limit: usize, offered: &[&str]) -> (String, bool) {
    let budget = Budget::new(None, Arc::default(), u64::MAX);
    let mut results: SortedResults<'_, String> = SortedResults::new(limit, &budget, String::len);
    for item in offered {
        let _ = results.insert(*item);
        assert!(results.results.len() <= limit);
    }
    let (found, has_more) = results.finish();
    (found.join(" "), has_more)
}

#[test]
fn the_first_in_order_are_kept() {
    assert_eq!(sorted_results(2, &["c", "a", "b", "a"]), ("a b".to_owned(), true));
    assert_eq!(sorted_results(3, &["c", "a", "b", "c"]), ("a b c".to_owned(), false));
    assert_eq!(sorted_results(0, &["a"]), (String::new(), true));
    assert_eq!(sorted_results(1, &["a", "a"]), ("a".to_owned(), false));
}

#[test]
fn it_breaks_off_when_all_that_follow_are_unwanted() {
    let budget = Budget::new(None, Arc::default(), 100);
    let mut results: SortedResults<'_, String> = SortedResults::new(1, &budget, String::len);
    assert!(results.insert("b").is_continue());
    assert!(results.insert("a").is_continue());
    assert!(results.insert("a").is_continue());
    assert!(results.insert("b").is_break());
}
