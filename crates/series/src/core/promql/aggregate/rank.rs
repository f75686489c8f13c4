//! The best so many of a group, best first.
//!
//! Which of equals stays is what Prometheus keeps, which has a binary heap with the worst on top and lets go of that.

use std::cmp::Ordering;

use super::super::syntax::Aggregator;

/// A value and whose it is.
type Candidate = (f64, usize);

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Highest,
    Lowest,
}

impl Rank {
    /// The order of an aggregation that has one.
    pub(super) fn of(aggregator: Aggregator) -> Option<Self> {
        match aggregator {
            Aggregator::TopK => Some(Self::Highest),
            Aggregator::BottomK => Some(Self::Lowest),
            _ => None,
        }
    }

    /// Whether a number is worse than another; NaN is worse than anything.
    fn is_worse(self, one: f64, other: f64) -> bool {
        one.is_nan()
            || match self {
                Self::Highest => one < other,
                Self::Lowest => one > other,
            }
    }

    /// Whether a value takes the place of the worst.
    fn replaces(self, worst: f64, value: f64) -> bool {
        match worst.is_nan() {
            true => !value.is_nan(),
            false => self.is_worse(worst, value),
        }
    }

    /// Puts the best `count` first. Says whether some that are equal to the worst of them are not among them, so that
    /// the order in which they came has decided.
    pub(super) fn choose(self, candidates: &mut [Candidate], count: usize) -> bool {
        if count == 0 || count >= candidates.len() {
            return false;
        }
        let (heap, others) = candidates.split_at_mut(count);
        for last in 1..count {
            self.rise(heap, last);
        }
        for other in others {
            if self.replaces(heap[0].0, other.0) {
                std::mem::swap(&mut heap[0], other);
                self.sink(heap);
            }
        }
        let worst = candidates[0].0;
        let mut others = candidates[count..].iter().map(|(value, _)| *value);
        others.any(|value| value == worst || value.is_nan() && worst.is_nan())
    }

    /// Brings up the last of a heap to where it belongs.
    fn rise(self, heap: &mut [Candidate], mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.is_worse(heap[at].0, heap[parent].0) {
                break;
            }
            heap.swap(at, parent);
            at = parent;
        }
    }

    /// Brings down the first of a heap to where it belongs.
    fn sink(self, heap: &mut [Candidate]) {
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= heap.len() {
                break;
            }
            let is_right = right < heap.len() && self.is_worse(heap[right].0, heap[left].0);
            let worse = if is_right { right } else { left };
            if !self.is_worse(heap[worse].0, heap[at].0) {
                break;
            }
            heap.swap(at, worse);
            at = worse;
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
