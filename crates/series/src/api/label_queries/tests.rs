//! No more is kept than is wanted.

use super::*;

fn first_of(limit: usize, offered: &[&str]) -> (String, bool) {
    let budget = Budget::new(None, Arc::default(), u64::MAX);
    let mut first: First<'_, String> = First::new(limit, &budget, String::len);
    for one in offered {
        let _ = first.offer(*one);
        assert!(first.found.len() <= limit);
    }
    let (found, has_more) = first.finish();
    (found.join(" "), has_more)
}

#[test]
fn the_first_in_order_are_kept() {
    assert_eq!(first_of(2, &["c", "a", "b", "a"]), ("a b".to_owned(), true));
    assert_eq!(
        first_of(3, &["c", "a", "b", "c"]),
        ("a b c".to_owned(), false)
    );
    assert_eq!(first_of(0, &["a"]), (String::new(), true));
    assert_eq!(first_of(1, &["a", "a"]), ("a".to_owned(), false));
}

#[test]
fn it_breaks_off_when_all_that_follow_are_unwanted() {
    let budget = Budget::new(None, Arc::default(), 100);
    let mut first: First<'_, String> = First::new(1, &budget, String::len);
    assert!(first.offer("b").is_continue());
    assert!(first.offer("a").is_continue());
    assert!(first.offer("a").is_continue());
    assert!(first.offer("b").is_break());
}
