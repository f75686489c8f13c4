//! Values of waits, and the message of a wait in vain.

use super::*;

#[test]
fn a_wait_returns_the_value_of_its_condition() {
    let mut polls = 0;
    let value = eventually_blocking("three polls", || {
        polls += 1;
        (polls == 3).then_some("third")
    });
    assert_eq!((value, polls), ("third", 3));
    eventually_blocking("truth", || true);
    let value = eventually_blocking("success", || Ok::<_, &str>(7));
    assert_eq!(value, 7);
}

#[test]
fn a_failure_names_what_was_awaited_and_the_state_that_was_seen() {
    let error = Err::<(), _>("still starting").into_value().unwrap_err();
    assert_eq!(
        failure("the server is ready", error),
        "did not happen within 120s: the server is ready; last seen: \"still starting\""
    );
    let error = false.into_value().unwrap_err();
    assert_eq!(failure("the file is gone", error), "did not happen within 120s: the file is gone");
}
