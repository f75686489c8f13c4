//! Messages with those of their causes.

use super::*;

/// An error with a message and a cause.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct ChainError {
    message: &'static str,
    source: Option<Box<ChainError>>,
}

/// The chain of errors with these messages, each caused by the next.
fn chain_of(messages: &[&'static str]) -> String {
    let mut source = None;
    for &message in messages.iter().rev() {
        source = Some(Box::new(ChainError { message, source }));
    }
    chain(&*source.expect("there is one"))
}

#[test]
fn causes_follow_their_effects() {
    assert_eq!(
        chain_of(&["cannot read x", "the disk is gone", "error 5"]),
        "cannot read x: the disk is gone: error 5"
    );
}

#[test]
fn a_cause_that_a_message_has_already_is_not_repeated() {
    assert_eq!(chain_of(&["cannot read x: gone", "gone"]), "cannot read x: gone");
    assert_eq!(
        chain_of(&["cannot read x: the disk is gone: put it back", "the disk is gone", "error 5"]),
        "cannot read x: the disk is gone: put it back: error 5"
    );
    assert_eq!(chain_of(&["cannot read x", ""]), "cannot read x");
}

#[test]
fn a_cause_that_is_a_part_of_a_word_only_is_told() {
    assert_eq!(chain_of(&["sending failed", "end"]), "sending failed: end");
}
