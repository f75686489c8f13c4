//! What is said of a query that is refused.

use super::*;

fn refusal(position: usize) -> Failure {
    Failure { position: Some(position), ..Failure::failed("view_unsupported", "it cannot be kept") }
}

#[test]
fn the_place_in_the_query_is_shown() {
    let query = "select carrier,\n       random() as dice\nfrom flights";
    let hint = |position| add_query_excerpt(refusal(position), query).hint;
    let dice = "it is in line 2 of the query: random() as dice";
    assert_eq!(hint(24).as_deref(), Some(dice));
    let first = "it is in line 1 of the query: select carrier,";
    assert_eq!(hint(1).as_deref(), Some(first));
    // Of a view that the query names, or of another query.
    assert_eq!(hint(0), None);
    assert_eq!(hint(query.len() + 1), None);
    assert_eq!(hint(1_000), None);
}

#[test]
fn a_place_within_a_letter_is_none() {
    assert_eq!(add_query_excerpt(refusal(10), "select 'ü' from t").hint, None);
}
