//! Windows of time by which samples are written to blocks: the older the samples, the longer,
//! so that a backfill of years makes few blocks.

use egret_metrics_model::{SeriesSamples, TimeMs};

const HOUR_MS: TimeMs = 3_600_000;
const DAY_MS: TimeMs = 24 * HOUR_MS;

/// The windows that samples of the last hours, of the last day, of the last month, and before are
/// written to, in milliseconds. All begin at multiples of their length.
pub const WINDOWS_MS: [TimeMs; 4] = [2 * HOUR_MS, 8 * HOUR_MS, DAY_MS, 30 * DAY_MS];

/// Length of the window of a sample.
fn window_length_ms(time_ms: TimeMs, now_ms: TimeMs) -> TimeMs {
    let age_ms = now_ms.saturating_sub(time_ms);
    match age_ms {
        _ if age_ms > 31 * DAY_MS => WINDOWS_MS[3],
        _ if age_ms > 25 * HOUR_MS => WINDOWS_MS[2],
        _ if age_ms > 9 * HOUR_MS => WINDOWS_MS[1],
        _ => WINDOWS_MS[0],
    }
}

/// First and last time of the window of a sample.
fn window_bounds(time_ms: TimeMs, now_ms: TimeMs) -> (TimeMs, TimeMs) {
    let length_ms = window_length_ms(time_ms, now_ms);
    let start = time_ms.saturating_sub(time_ms.rem_euclid(length_ms));
    (start, start.saturating_add(length_ms - 1))
}

/// Time before which the samples of a head are due to be in blocks.
#[derive(Clone, Copy, Debug)]
pub struct FlushSchedule {
    /// End of the last flush.
    flushed_end: TimeMs,
}

impl FlushSchedule {
    /// At a start: only samples missing from blocks are due, until another window is over.
    pub fn new(now_ms: TimeMs, settle_ms: TimeMs) -> Self {
        Self { flushed_end: settled_end(now_ms, settle_ms) }
    }

    /// Where the samples before some time are to be written to blocks now, that time: the end of
    /// the last window that was over `settle_ms` ago. Blocks have what is before `in_blocks_end`.
    ///
    /// When the clock was set back, blocks have what is before a time to come, and what is written
    /// meanwhile would stay in memory until then: with each window that is over now it is due as
    /// well.
    pub fn due_end(
        &mut self,
        now_ms: TimeMs,
        settle_ms: TimeMs,
        in_blocks_end: TimeMs,
    ) -> Option<TimeMs> {
        let end = settled_end(now_ms, settle_ms);
        let is_due = in_blocks_end < end || self.flushed_end < end;
        self.flushed_end = self.flushed_end.min(end);
        is_due.then_some(end)
    }

    /// Records that the samples before this time are in blocks.
    pub fn mark_flushed(&mut self, end: TimeMs) {
        self.flushed_end = end;
    }
}

fn settled_end(now_ms: TimeMs, settle_ms: TimeMs) -> TimeMs {
    let settled_ms = now_ms.saturating_sub(settle_ms);
    settled_ms.saturating_sub(settled_ms.rem_euclid(WINDOWS_MS[0]))
}

/// The samples of a series by window; with each the first time of its window.
pub fn split_by_window(samples: &SeriesSamples, now_ms: TimeMs) -> Vec<(TimeMs, SeriesSamples)> {
    let mut pieces: Vec<(TimeMs, SeriesSamples)> = Vec::new();
    let (mut number_index, mut histogram_index) = (0, 0);
    loop {
        let first = samples.times_ms.get(number_index);
        let first_histogram = samples.histogram_times_ms.get(histogram_index);
        let Some(first_ms) = first.into_iter().chain(first_histogram).min() else {
            return pieces;
        };
        let (start, last_ms) = window_bounds(*first_ms, now_ms);
        let end = number_index
            + samples.times_ms[number_index..].partition_point(|time_ms| *time_ms <= last_ms);
        let histogram_times_ms = &samples.histogram_times_ms[histogram_index..];
        let histogram_end =
            histogram_index + histogram_times_ms.partition_point(|time_ms| *time_ms <= last_ms);
        let piece = SeriesSamples {
            times_ms: samples.times_ms[number_index..end].to_vec(),
            values: samples.values[number_index..end].to_vec(),
            histogram_times_ms: samples.histogram_times_ms[histogram_index..histogram_end].to_vec(),
            histograms: samples.histograms[histogram_index..histogram_end].to_vec(),
        };
        // Where windows become longer, one may begin before the end of the one before it.
        match pieces.last_mut() {
            Some((last, before)) if *last == start => before.append(piece),
            _ => pieces.push((start, piece)),
        }
        (number_index, histogram_index) = (end, histogram_end);
    }
}

#[cfg(test)]
mod tests;
