//! A limit allows its maximum and refuses one more, by name.

use super::*;

#[test]
fn allows_the_maximum_and_names_itself_beyond() {
    let limit = Limit::new("branches_max", 2);
    assert_eq!(limit.check(2), Ok(()));
    let error = limit.check(3).unwrap_err();
    assert!(error.to_string().contains("branches_max is 2, but 3"));
    assert!(error.retryable());
}
