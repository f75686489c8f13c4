//! Division of the samples of a series into chunks.
//!
//! Chunk boundaries are aligned to multiples of a span, the same for all series with the same
//! scrape interval, so that series that are scraped together share their time columns. The span is
//! the longest that keeps a chunk within [`CHUNK_SAMPLES_MAX`].

use std::ops::Range;

use egret_metrics_model::TimeMs;

use super::CHUNK_SAMPLES_MAX;

const SECOND_MS: i64 = 1000;
const HOUR_MS: i64 = 3600 * SECOND_MS;

/// Each divides the one before it.
const SPANS_MS: [i64; 10] = [
    30 * 24 * HOUR_MS,
    5 * 24 * HOUR_MS,
    24 * HOUR_MS,
    12 * HOUR_MS,
    6 * HOUR_MS,
    2 * HOUR_MS,
    HOUR_MS / 2,
    HOUR_MS / 12,
    HOUR_MS / 60,
    SECOND_MS,
];

/// The chunks of ascending times, as ranges of them, in order.
pub(crate) fn chunk_ranges(times_ms: &[TimeMs]) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    split_by_spans(times_ms, 0, &SPANS_MS, &mut chunks);
    chunks
}

fn split_by_spans(
    times_ms: &[TimeMs],
    offset: usize,
    spans_ms: &[i64],
    chunks: &mut Vec<Range<usize>>,
) {
    let Some((span_ms, finer_spans_ms)) = spans_ms.split_first() else {
        // More samples in a second than a chunk holds: divide them by number.
        let starts = (0..times_ms.len()).step_by(CHUNK_SAMPLES_MAX);
        chunks.extend(
            starts.map(|from| offset + from..offset + times_ms.len().min(from + CHUNK_SAMPLES_MAX)),
        );
        return;
    };
    let mut start = 0;
    while let Some(first) = times_ms.get(start) {
        let end_ms = first.div_euclid(*span_ms).saturating_add(1).saturating_mul(*span_ms);
        let length = times_ms[start..].partition_point(|time_ms| *time_ms < end_ms).max(1);
        if length <= CHUNK_SAMPLES_MAX {
            chunks.push(offset + start..offset + start + length)
        } else {
            split_by_spans(&times_ms[start..start + length], offset + start, finer_spans_ms, chunks)
        }
        start += length;
    }
}

#[cfg(test)]
mod tests;
