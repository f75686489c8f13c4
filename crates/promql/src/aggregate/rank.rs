//! The best so many of a group, best first.
//!
//! Which of equals stays is what Prometheus keeps, which has a binary heap with the worst on top
//! and lets go of that.

use std::cmp::Ordering;

use super::super::syntax::Aggregator;

/// A value and its series.
type Candidate = (f64, usize);

/// Which values rank first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Highest,
    Lowest,
}

impl Rank {
    /// The order of an aggregation that has one.
    pub(super) fn from_aggregator(aggregator: Aggregator) -> Option<Self> {
        match aggregator {
            Aggregator::TopK => Some(Self::Highest),
            Aggregator::BottomK => Some(Self::Lowest),
            _ => None,
        }
    }

    /// Puts the best `count` first. Says whether some that are equal to the worst of them are not
    /// among them, so that the order in which they came has decided.
    pub(super) fn partition_best(self, candidates: &mut [Candidate], count: usize) -> bool {
        // Two loops, so that neither asks for each value which of them it is.
        match self {
            Self::Highest => partition_best(candidates, count, |one, other| one < other),
            Self::Lowest => partition_best(candidates, count, |one, other| one > other),
        }
    }

    /// Best first, NaN last.
    pub(super) fn sort(self, candidates: &mut [Candidate]) {
        candidates.sort_by(|(one, _), (other, _)| {
            let by_value = one.partial_cmp(other).unwrap_or(Ordering::Equal);
            let by_value = match self {
                Self::Highest => by_value.reverse(),
                Self::Lowest => by_value,
            };
            one.is_nan().cmp(&other.is_nan()).then(by_value)
        });
    }
}

/// Chooses by what makes one number worse than another. NaN is worse than anything.
fn partition_best(
    candidates: &mut [Candidate],
    count: usize,
    is_worse: impl Fn(f64, f64) -> bool + Copy,
) -> bool {
    if count == 0 || count >= candidates.len() {
        return false;
    }
    let (heap, others) = candidates.split_at_mut(count);
    let is_above = |one: Candidate, other: Candidate| one.0.is_nan() || is_worse(one.0, other.0);
    for last in 1..count {
        sift_up(heap, last, is_above);
    }
    let (mut worst, mut is_tied) = (heap[0].0, false);
    for candidate in others {
        let value = candidate.0;
        if is_worse(worst, value) || worst.is_nan() && !value.is_nan() {
            std::mem::swap(&mut heap[0], candidate);
            sift_down(heap, is_above);
            // What went may be as bad as what is the worst now.
            is_tied = heap[0].0 == worst || heap[0].0.is_nan() && worst.is_nan();
            worst = heap[0].0;
        } else {
            is_tied |= value == worst || value.is_nan() && worst.is_nan();
        }
    }
    is_tied
}

/// Brings up the last of a heap to where it belongs.
fn sift_up(
    heap: &mut [Candidate],
    mut index: usize,
    is_above: impl Fn(Candidate, Candidate) -> bool,
) {
    while index > 0 {
        let parent = (index - 1) / 2;
        if !is_above(heap[index], heap[parent]) {
            break;
        }
        heap.swap(index, parent);
        index = parent;
    }
}

/// Brings down the first of a heap to where it belongs.
fn sift_down(heap: &mut [Candidate], is_above: impl Fn(Candidate, Candidate) -> bool) {
    let mut index = 0;
    loop {
        let (left, right) = (2 * index + 1, 2 * index + 2);
        if left >= heap.len() {
            break;
        }
        let is_right = right < heap.len() && is_above(heap[right], heap[left]);
        let worse = if is_right { right } else { left };
        if !is_above(heap[worse], heap[index]) {
            break;
        }
        heap.swap(index, worse);
        index = worse;
    }
}
