//! Merges the samples of one series from several blocks.

use egret_metrics_model::{SeriesSamples, TimeMs};

/// Merges in newer samples: where both have a sample at one time, the one of `newer`
/// wins.
pub fn merge_newer(samples: &mut SeriesSamples, newer: &SeriesSamples) {
    merge_columns(&mut samples.times_ms, &mut samples.values, &newer.times_ms, &newer.values);
    merge_columns(
        &mut samples.histogram_times_ms,
        &mut samples.histograms,
        &newer.histogram_times_ms,
        &newer.histograms,
    );
}

fn merge_columns<V: Clone>(
    times_ms: &mut Vec<TimeMs>,
    values: &mut Vec<V>,
    newer_ms: &[TimeMs],
    newer: &[V],
) {
    let Some(first) = newer_ms.first() else {
        return;
    };
    // Samples before the first newer one stay unchanged.
    let unchanged_count = times_ms.partition_point(|time_ms| time_ms < first);
    let old_ms = times_ms.split_off(unchanged_count);
    let old = values.split_off(unchanged_count);
    let mut old = old_ms.into_iter().zip(old).peekable();
    for (time_ms, value) in newer_ms.iter().zip(newer) {
        while let Some((old_ms, old)) = old.next_if(|(old_ms, _)| old_ms < time_ms) {
            times_ms.push(old_ms);
            values.push(old);
        }
        _ = old.next_if(|(old_ms, _)| old_ms == time_ms);
        times_ms.push(*time_ms);
        values.push(value.clone());
    }
    for (old_ms, old) in old {
        times_ms.push(old_ms);
        values.push(old);
    }
}

/// Keeps the last sample of each interval, of numbers and of histograms. Intervals begin at
/// multiples of their length.
pub(crate) fn keep_last_of_intervals(interval_ms: i64, samples: &mut SeriesSamples) {
    keep_last_in_column(interval_ms, &mut samples.times_ms, &mut samples.values);
    keep_last_in_column(interval_ms, &mut samples.histogram_times_ms, &mut samples.histograms);
}

fn keep_last_in_column<V>(interval_ms: i64, times_ms: &mut Vec<TimeMs>, values: &mut Vec<V>) {
    let mut kept = 0;
    for index in 0..times_ms.len() {
        let interval = times_ms[index].div_euclid(interval_ms);
        let next = times_ms.get(index + 1).map(|next| next.div_euclid(interval_ms));
        if next != Some(interval) {
            times_ms.swap(kept, index);
            values.swap(kept, index);
            kept += 1;
        }
    }
    times_ms.truncate(kept);
    values.truncate(kept);
}

#[cfg(test)]
mod tests;
