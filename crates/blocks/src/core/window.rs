//! Windows of time by which samples are written to blocks: the older the samples, the longer,
//! so that a backfill of years makes few blocks.

use egret_metrics_model::{SeriesSamples, TimeMs};

const HOUR_MS: TimeMs = 3_600_000;
const DAY_MS: TimeMs = 24 * HOUR_MS;

/// The windows that samples of the last hours, of the last day, of the last month, and before are
/// written to, in milliseconds. All begin at multiples of their length.
pub const WINDOWS_MS: [TimeMs; 4] = [2 * HOUR_MS, 8 * HOUR_MS, DAY_MS, 30 * DAY_MS];

/// Length of the window of a sample.
fn length_ms(time_ms: TimeMs, now_ms: TimeMs) -> TimeMs {
    let age_ms = now_ms.saturating_sub(time_ms);
    match age_ms {
        _ if age_ms > 31 * DAY_MS => WINDOWS_MS[3],
        _ if age_ms > 25 * HOUR_MS => WINDOWS_MS[2],
        _ if age_ms > 9 * HOUR_MS => WINDOWS_MS[1],
        _ => WINDOWS_MS[0],
    }
}

/// First and last time of the window of a sample.
fn window_of(time_ms: TimeMs, now_ms: TimeMs) -> (TimeMs, TimeMs) {
    let length_ms = length_ms(time_ms, now_ms);
    let from = time_ms.saturating_sub(time_ms.rem_euclid(length_ms));
    (from, from.saturating_add(length_ms - 1))
}

/// Time before which the samples of a head are due to be in blocks.
#[derive(Clone, Copy, Debug)]
pub struct FlushSchedule {
    /// End of the last flush.
    done: TimeMs,
}

impl FlushSchedule {
    /// At a start: only samples missing from blocks are due, until another window is over.
    pub fn new(now_ms: TimeMs, settle_ms: TimeMs) -> Self {
        Self {
            done: end_of_settled(now_ms, settle_ms),
        }
    }

    /// Where the samples before some time are to be written to blocks now, that time: the end of
    /// the last window that was over `settle_ms` ago. Blocks have what is before `in_blocks_end`.
    ///
    /// When the clock was set back, blocks have what is before a time to come, and what is written
    /// meanwhile would stay in memory until then: with each window that is over now it is due as
    /// well.
    pub fn at(
        &mut self,
        now_ms: TimeMs,
        settle_ms: TimeMs,
        in_blocks_end: TimeMs,
    ) -> Option<TimeMs> {
        let end = end_of_settled(now_ms, settle_ms);
        let is_due = in_blocks_end < end || self.done < end;
        self.done = self.done.min(end);
        is_due.then_some(end)
    }

    /// Records that the samples before this time are in blocks.
    pub fn is_done(&mut self, end: TimeMs) {
        self.done = end;
    }
}

fn end_of_settled(now_ms: TimeMs, settle_ms: TimeMs) -> TimeMs {
    let settled_ms = now_ms.saturating_sub(settle_ms);
    settled_ms.saturating_sub(settled_ms.rem_euclid(WINDOWS_MS[0]))
}

/// The samples of a series by window; with each the first time of its window.
pub fn split(samples: &SeriesSamples, now_ms: TimeMs) -> Vec<(TimeMs, SeriesSamples)> {
    let mut pieces: Vec<(TimeMs, SeriesSamples)> = Vec::new();
    let (mut at, mut histograms_at) = (0, 0);
    loop {
        let first = samples.times_ms.get(at);
        let first_histogram = samples.histogram_times_ms.get(histograms_at);
        let Some(first_ms) = first.into_iter().chain(first_histogram).min() else {
            return pieces;
        };
        let (from, last_ms) = window_of(*first_ms, now_ms);
        let to = at + samples.times_ms[at..].partition_point(|time_ms| *time_ms <= last_ms);
        let of_histograms = &samples.histogram_times_ms[histograms_at..];
        let histograms_to =
            histograms_at + of_histograms.partition_point(|time_ms| *time_ms <= last_ms);
        let piece = SeriesSamples {
            times_ms: samples.times_ms[at..to].to_vec(),
            values: samples.values[at..to].to_vec(),
            histogram_times_ms: samples.histogram_times_ms[histograms_at..histograms_to].to_vec(),
            histograms: samples.histograms[histograms_at..histograms_to].to_vec(),
        };
        // Where windows become longer, one may begin before the end of the one before it.
        match pieces.last_mut() {
            Some((last, before)) if *last == from => before.append(piece),
            _ => pieces.push((from, piece)),
        }
        (at, histograms_at) = (to, histograms_to);
    }
}

#[cfg(test)]
mod tests;
