//! An immutable index of series by label and value.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_metrics_model::{LabelMatcher, MatchOp};
use roaring::RoaringBitmap;

use crate::core::head::HeadSeries;

/// An immutable index of some series. A series' number is its place in the list.
#[derive(Debug, Default)]
pub struct Segment {
    series: Box<[Arc<HeadSeries>]>,
    labels: BTreeMap<Box<str>, SegmentValues>,
}

/// The values of a label, sorted, each with the numbers of the series that have it, ascending:
/// three columns rather than a list for each, as most values are short and many have but one
/// series.
#[derive(Debug, Default)]
struct SegmentValues {
    text: String,
    /// Where each value ends in `text`, and its numbers in `numbers`.
    ends: Vec<(u32, u32)>,
    numbers: Vec<u32>,
}

impl SegmentValues {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn at(&self, index: usize) -> (&str, &[u32]) {
        let (text_from, numbers_from) = match index.checked_sub(1) {
            Some(before) => self.ends[before],
            None => (0, 0),
        };
        let (text_to, numbers_to) = self.ends[index];
        (
            &self.text[text_from as usize..text_to as usize],
            &self.numbers[numbers_from as usize..numbers_to as usize],
        )
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &[u32])> {
        (0..self.len()).map(|index| self.at(index))
    }

    fn find(&self, value: &str) -> &[u32] {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.at(middle).0 < value {
                low = middle + 1
            } else {
                high = middle
            }
        }
        if low < self.len() && self.at(low).0 == value {
            self.at(low).1
        } else {
            &[]
        }
    }

    /// Adds a value that is greater than all others; one without numbers is left out.
    fn push(&mut self, value: &str, numbers: impl Iterator<Item = u32>) {
        let before = self.numbers.len();
        self.numbers.extend(numbers);
        if self.numbers.len() > before {
            self.text.push_str(value);
            self.ends
                .push((self.text.len() as u32, self.numbers.len() as u32));
        }
    }

    fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.numbers.shrink_to_fit();
    }
}

impl Segment {
    /// Builds the segment of `series`.
    pub fn new(series: Vec<Arc<HeadSeries>>) -> Self {
        let mut pairs: BTreeMap<&str, Vec<(&str, u32)>> = BTreeMap::new();
        for (number, one) in series.iter().enumerate() {
            for (name, value) in one.labels.iter() {
                pairs.entry(name).or_default().push((value, number as u32));
            }
        }
        let labels = pairs.into_iter().map(|(name, mut pairs)| {
            pairs.sort_unstable();
            let mut values = SegmentValues::default();
            for run in pairs.chunk_by(|one, other| one.0 == other.0) {
                values.push(run[0].0, run.iter().map(|(_, number)| *number));
            }
            values.shrink();
            (name.into(), values)
        });
        Self {
            labels: labels.collect(),
            series: series.into(),
        }
    }

    /// All series of some segments, in their order, without those that are not wanted.
    pub fn merge(segments: &[Arc<Segment>], wanted: impl Fn(&HeadSeries) -> bool) -> Self {
        let mut series = Vec::new();
        // For each segment, by a series' number in it: its number now.
        let renumbered: Vec<Vec<Option<u32>>> = segments
            .iter()
            .map(|segment| {
                let renumber = |one: &Arc<HeadSeries>| {
                    wanted(one).then(|| {
                        series.push(one.clone());
                        series.len() as u32 - 1
                    })
                };
                segment.series.iter().map(renumber).collect()
            })
            .collect();
        let mut labels: BTreeMap<Box<str>, SegmentValues> = BTreeMap::new();
        for name in segments.iter().flat_map(|segment| segment.labels.keys()) {
            if !labels.contains_key(name) {
                labels.insert(name.clone(), merge_values(name, segments, &renumbered));
            }
        }
        labels.retain(|_, values| values.len() > 0);
        Self {
            labels,
            series: series.into(),
        }
    }

    /// Its series by number.
    pub fn series(&self) -> &[Arc<HeadSeries>] {
        &self.series
    }

    /// The names of labels, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(|name| &**name)
    }

    /// The values of a label, sorted, and how many series have each.
    pub fn values(&self, name: &str) -> impl Iterator<Item = (&str, usize)> {
        let values = self
            .labels
            .get(name)
            .into_iter()
            .flat_map(SegmentValues::iter);
        values.map(|(value, numbers)| (value, numbers.len()))
    }

    /// The numbers of the series that match.
    ///
    /// What must have one value comes first, the rarest value of all; the others need only look at
    /// what is left. A regular expression is tried on each value of its label, or on each series
    /// that is left, whichever are fewer.
    pub fn select(&self, matchers: &[LabelMatcher]) -> RoaringBitmap {
        let mut exact: Vec<&[u32]> = Vec::new();
        let mut others: Vec<&LabelMatcher> = Vec::new();
        for matcher in matchers {
            let what = matcher.matcher();
            match what.op {
                MatchOp::Equal if !what.value.is_empty() => {
                    let values = self.labels.get(&what.name);
                    exact.push(values.map_or(&[], |values| values.find(&what.value)));
                }
                _ => others.push(matcher),
            }
        }
        exact.sort_by_key(|numbers| numbers.len());
        let mut left = match exact.split_first() {
            Some((rarest, rest)) => {
                let mut left = rarest.to_vec();
                rest.iter()
                    .for_each(|numbers| keep_common(&mut left, numbers));
                from_sorted(&left)
            }
            None => RoaringBitmap::from_iter(0..self.series.len() as u32),
        };
        for matcher in others {
            if left.is_empty() {
                break;
            }
            self.narrow(matcher, &mut left);
        }
        left
    }

    fn narrow(&self, matcher: &LabelMatcher, left: &mut RoaringBitmap) {
        let name = &*matcher.matcher().name;
        let takes_missing = matcher.matches("");
        let Some(values) = self.labels.get(name) else {
            if !takes_missing {
                left.clear();
            }
            return;
        };
        if (left.len() as usize) < values.len() {
            let matches = |number: &u32| {
                let series = &self.series[*number as usize];
                matcher.matches(series.labels.get(name))
            };
            *left = from_sorted(&left.iter().filter(matches).collect::<Vec<_>>());
            return;
        }
        // Of the values that are taken and those that are not, the ones that say something of a
        // label which is missing.
        let mut numbers: Vec<u32> = Vec::new();
        for (value, its) in values.iter() {
            if matcher.matches(value) != takes_missing {
                numbers.extend_from_slice(its);
            }
        }
        numbers.sort_unstable();
        let found = from_sorted(&numbers);
        if takes_missing {
            *left -= found
        } else {
            *left &= found
        }
    }
}

fn merge_values(
    name: &str,
    segments: &[Arc<Segment>],
    renumbered: &[Vec<Option<u32>>],
) -> SegmentValues {
    let none = SegmentValues::default();
    let sources: Vec<&SegmentValues> = segments
        .iter()
        .map(|segment| segment.labels.get(name).unwrap_or(&none))
        .collect();
    let mut next = vec![0; sources.len()];
    let mut merged = SegmentValues::default();
    loop {
        let ahead = |(source, next): (&&SegmentValues, &usize)| {
            (*next < source.len()).then(|| source.at(*next).0.to_owned())
        };
        let Some(least) = sources.iter().zip(&next).filter_map(ahead).min() else {
            break;
        };
        let mut numbers = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            if next[number] < source.len() && source.at(next[number]).0 == least {
                let its = source.at(next[number]).1.iter();
                numbers.extend(its.filter_map(|old| renumbered[number][*old as usize]));
                next[number] += 1;
            }
        }
        merged.push(&least, numbers.into_iter());
    }
    merged.shrink();
    merged
}

fn from_sorted(numbers: &[u32]) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(numbers.iter().copied()).expect("the numbers ascend")
}

/// Leaves in `left` what is in `numbers` too; both ascend. Leaps through `numbers`, which is the
/// longer one.
fn keep_common(left: &mut Vec<u32>, mut numbers: &[u32]) {
    left.retain(|number| {
        let mut step = 1;
        while numbers.get(step).is_some_and(|there| there < number) {
            step *= 2;
        }
        let near = &numbers[..numbers.len().min(step + 1)];
        numbers = &numbers[near.partition_point(|there| there < number)..];
        numbers.first() == Some(number)
    });
}
