//! `load_with_nhcb`: classic histograms are loaded a second time, as native histograms whose bounds
//! are listed.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME, TimeMs};

use super::super::histogram::FloatHistogram;
use super::super::{MemorySource, number};
use super::notation::{SeriesItem, SeriesLine};

const CUSTOM_SCHEMA: i32 = -53;

/// A classic histogram at one time.
#[derive(Default)]
struct ClassicHistogram {
    /// Upper bound and count of what is at most it.
    buckets: Vec<(f64, f64)>,
    count: Option<f64>,
    sum: f64,
}

pub(super) fn load(source: &mut MemorySource, step_ms: i64, lines: &[SeriesLine]) {
    let mut classics: BTreeMap<(Labels, TimeMs), ClassicHistogram> = BTreeMap::new();
    for line in lines {
        let metric = line.labels.metric();
        let suffixes = ["_bucket", "_count", "_sum"].into_iter();
        let matched_suffix =
            suffixes.filter_map(|ending| Some((metric.strip_suffix(ending)?, ending))).next();
        let Some((base, ending)) = matched_suffix else {
            continue;
        };
        let upper = number::parse(line.labels.get("le"));
        let mut labels = LabelsBuilder::from_labels(&line.labels);
        let labels = labels.set(METRIC_NAME, base).remove("le").build();
        for (index, item) in line.items.iter().enumerate() {
            let SeriesItem::Float(value) = item else {
                continue;
            };
            let classic = classics.entry((labels.clone(), index as i64 * step_ms)).or_default();
            match (ending, upper) {
                ("_bucket", Some(upper)) => classic.buckets.push((upper, *value)),
                ("_count", _) => classic.count = Some(*value),
                ("_sum", _) => classic.sum = *value,
                _ => {}
            }
        }
    }
    for ((labels, time), classic) in classics {
        if !classic.buckets.is_empty() {
            source.add_histogram(&labels, time, Arc::new(to_native(classic)));
        }
    }
}

fn to_native(mut classic: ClassicHistogram) -> FloatHistogram {
    classic.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let highest = classic.buckets.last().map_or(0.0, |(_, count)| *count);
    let count = classic.count.unwrap_or(highest);
    if classic.buckets.last().is_some_and(|(upper, _)| *upper != f64::INFINITY) {
        classic.buckets.push((f64::INFINITY, count));
    }
    let mut count_below = 0.0;
    let counts = classic.buckets.iter().enumerate().map(|(at, (_, count))| {
        let bucket_count = count - count_below;
        count_below = *count;
        (at as i32, bucket_count)
    });
    let positive = counts.filter(|(_, count)| *count != 0.0).collect();
    let bounds = classic.buckets.iter().map(|(upper, _)| *upper).filter(|upper| upper.is_finite());
    FloatHistogram {
        schema: CUSTOM_SCHEMA,
        count,
        sum: classic.sum,
        positive,
        custom_bounds: bounds.collect(),
        ..FloatHistogram::default()
    }
}
