//! What is said of refused samples.

use super::*;

fn rejected(count: usize) -> RejectedSamples {
    let mut rejected = RejectedSamples::default();
    (0..count).for_each(|number| rejected.add(2, format_args!("reason {number}")));
    rejected
}

#[test]
fn more_reasons_are_mentioned_only_when_there_are_more() {
    let said = rejected(REASONS_MAX).to_string();
    assert!(said.ends_with("; reason 4"), "{said}");
    let said = rejected(REASONS_MAX + 1).to_string();
    assert!(said.starts_with("12 samples were refused: reason 0; "), "{said}");
    assert!(said.ends_with("; reason 4; and more"), "{said}");
}

#[test]
fn reasons_of_several_batches_are_counted_together() {
    let mut all = rejected(REASONS_MAX - 1);
    all.merge(rejected(1));
    assert_eq!((all.reasons.len(), all.omitted_reasons), (REASONS_MAX, 0));
    all.merge(rejected(REASONS_MAX + 3));
    assert_eq!((all.reasons.len(), all.omitted_reasons), (REASONS_MAX, 8));
    assert_eq!(all.samples, 2 * 13);
}
