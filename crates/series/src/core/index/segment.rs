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

    fn get(&self, index: usize) -> (&str, &[u32]) {
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
        (0..self.len()).map(|index| self.get(index))
    }

    fn find(&self, value: &str) -> &[u32] {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.get(middle).0 < value { low = middle + 1 } else { high = middle }
        }
        if low < self.len() && self.get(low).0 == value { self.get(low).1 } else { &[] }
    }

    /// Adds a value that is greater than all others; one without numbers is left out.
    fn push(&mut self, value: &str, numbers: impl Iterator<Item = u32>) {
        let before = self.numbers.len();
        self.numbers.extend(numbers);
        if self.numbers.len() > before {
            self.text.push_str(value);
            self.ends.push((self.text.len() as u32, self.numbers.len() as u32));
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
        for (number, head_series) in series.iter().enumerate() {
            for (name, value) in head_series.labels.iter() {
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
        Self { labels: labels.collect(), series: series.into() }
    }

    /// All series of some segments, in their order, without those that are not wanted.
    pub fn merge(segments: &[Arc<Segment>], is_kept: impl Fn(&HeadSeries) -> bool) -> Self {
        let mut series = Vec::new();
        // For each segment, by a series' number in it: its number now.
        let new_numbers: Vec<Vec<Option<u32>>> = segments
            .iter()
            .map(|segment| {
                let renumber = |head_series: &Arc<HeadSeries>| {
                    is_kept(head_series).then(|| {
                        series.push(head_series.clone());
                        series.len() as u32 - 1
                    })
                };
                segment.series.iter().map(renumber).collect()
            })
            .collect();
        let mut labels: BTreeMap<Box<str>, SegmentValues> = BTreeMap::new();
        for name in segments.iter().flat_map(|segment| segment.labels.keys()) {
            if !labels.contains_key(name) {
                labels.insert(name.clone(), merge_values(name, segments, &new_numbers));
            }
        }
        labels.retain(|_, values| values.len() > 0);
        Self { labels, series: series.into() }
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
        let values = self.labels.get(name).into_iter().flat_map(SegmentValues::iter);
        values.map(|(value, numbers)| (value, numbers.len()))
    }

    /// The numbers of the series that match.
    ///
    /// What must have one value comes first, the rarest value of all; the others need only look at
    /// what is left. A regular expression is tried on each value of its label, or on each series
    /// that is left, whichever are fewer.
    pub fn select(&self, matchers: &[LabelMatcher]) -> RoaringBitmap {
        let mut exact_numbers: Vec<&[u32]> = Vec::new();
        let mut others: Vec<&LabelMatcher> = Vec::new();
        for matcher in matchers {
            let condition = matcher.matcher();
            match condition.op {
                MatchOp::Equal if !condition.value.is_empty() => {
                    let values = self.labels.get(&condition.name);
                    exact_numbers.push(values.map_or(&[], |values| values.find(&condition.value)));
                }
                _ => others.push(matcher),
            }
        }
        exact_numbers.sort_by_key(|numbers| numbers.len());
        let mut remaining = match exact_numbers.split_first() {
            Some((rarest, rest)) => {
                let mut common = rarest.to_vec();
                rest.iter().for_each(|numbers| retain_common(&mut common, numbers));
                from_sorted(&common)
            }
            None => RoaringBitmap::from_iter(0..self.series.len() as u32),
        };
        for matcher in others {
            if remaining.is_empty() {
                break;
            }
            self.narrow(matcher, &mut remaining);
        }
        remaining
    }

    fn narrow(&self, matcher: &LabelMatcher, remaining: &mut RoaringBitmap) {
        let name = &*matcher.matcher().name;
        let matches_missing = matcher.matches("");
        let Some(values) = self.labels.get(name) else {
            if !matches_missing {
                remaining.clear();
            }
            return;
        };
        if (remaining.len() as usize) < values.len() {
            let matches = |number: &u32| {
                let series = &self.series[*number as usize];
                matcher.matches(series.labels.get(name))
            };
            *remaining = from_sorted(&remaining.iter().filter(matches).collect::<Vec<_>>());
            return;
        }
        // Of the values that are taken and those that are not, the ones that say something of a
        // label which is missing.
        let mut numbers: Vec<u32> = Vec::new();
        for (value, series_numbers) in values.iter() {
            if matcher.matches(value) != matches_missing {
                numbers.extend_from_slice(series_numbers);
            }
        }
        numbers.sort_unstable();
        let matching = from_sorted(&numbers);
        if matches_missing { *remaining -= matching } else { *remaining &= matching }
    }
}

fn merge_values(
    name: &str,
    segments: &[Arc<Segment>],
    new_numbers: &[Vec<Option<u32>>],
) -> SegmentValues {
    let empty = SegmentValues::default();
    let sources: Vec<&SegmentValues> =
        segments.iter().map(|segment| segment.labels.get(name).unwrap_or(&empty)).collect();
    let mut cursors = vec![0; sources.len()];
    let mut merged = SegmentValues::default();
    loop {
        let next_value = |(source, next): (&&SegmentValues, &usize)| {
            (*next < source.len()).then(|| source.get(*next).0.to_owned())
        };
        let Some(smallest) = sources.iter().zip(&cursors).filter_map(next_value).min() else {
            break;
        };
        let mut numbers = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            if cursors[number] < source.len() && source.get(cursors[number]).0 == smallest {
                let source_numbers = source.get(cursors[number]).1.iter();
                numbers.extend(source_numbers.filter_map(|old| new_numbers[number][*old as usize]));
                cursors[number] += 1;
            }
        }
        merged.push(&smallest, numbers.into_iter());
    }
    merged.shrink();
    merged
}

fn from_sorted(numbers: &[u32]) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(numbers.iter().copied()).expect("the numbers ascend")
}

/// Leaves in `left` what is in `numbers` too; both ascend. Leaps through `numbers`, which is the
/// longer one.
fn retain_common(shorter: &mut Vec<u32>, mut longer: &[u32]) {
    shorter.retain(|number| {
        let mut step = 1;
        while longer.get(step).is_some_and(|there| there < number) {
            step *= 2;
        }
        let nearby = &longer[..longer.len().min(step + 1)];
        longer = &longer[nearby.partition_point(|there| there < number)..];
        longer.first() == Some(number)
    });
}
