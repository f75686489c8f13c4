//! Requests in pieces, as a shard's log takes only so much with one append.

use std::sync::Arc;

use egret_metrics_model::{Histogram, TimeMs};

use super::ingest_batch::ShardPart;
use crate::worker::shard::{NewSeries, SAMPLE_BYTES_MAX, histogram_bytes_max};

/// Samples that are written together at most: one append takes several pieces, and writes of others
/// come between two pieces of a large request.
pub(super) const PIECE_SAMPLES: usize = 16_384;

/// Bytes of a piece in the log at most; a single label set or histogram may be larger.
const PIECE_BYTES: usize = PIECE_SAMPLES * SAMPLE_BYTES_MAX;

/// A part in pieces that an append can take, what came first first; none of an empty one.
pub(super) fn split_part(part: ShardPart) -> Vec<ShardPart> {
    if part.is_empty() {
        return Vec::new();
    }
    let is_small = part.samples.len() <= PIECE_SAMPLES;
    if is_small && part.new_series.is_empty() && part.histograms.is_empty() {
        return vec![part];
    }
    let mut pieces = Pieces::default();
    let mut samples = part.samples;
    // From the end, so that each sample is moved once.
    let mut later_pieces = Vec::new();
    while samples.len() > PIECE_SAMPLES {
        let last_start = (samples.len() - 1) / PIECE_SAMPLES * PIECE_SAMPLES;
        later_pieces.push(samples.split_off(last_start));
    }
    for later in later_pieces.into_iter().rev() {
        pieces.open.samples = std::mem::replace(&mut samples, later);
        pieces.close();
    }
    pieces.bytes = samples.len() * SAMPLE_BYTES_MAX;
    pieces.open.samples = samples;
    for (series, time_ms, histogram) in part.histograms.iter() {
        pieces.reserve(histogram_bytes_max(histogram));
        let histograms = &mut pieces.open.histograms;
        histograms.push(series, time_ms, histogram.clone());
    }
    for new in part.new_series {
        pieces.add_new(new);
    }
    pieces.close();
    pieces.closed
}

#[derive(Default)]
struct Pieces {
    closed: Vec<ShardPart>,
    open: ShardPart,
    bytes: usize,
}

impl Pieces {
    fn close(&mut self) {
        let piece = std::mem::take(&mut self.open);
        self.bytes = 0;
        if !piece.is_empty() {
            self.closed.push(piece);
        }
    }

    /// Makes sure that so many bytes fit into the open piece, where they fit into any.
    fn reserve(&mut self, bytes: usize) {
        if self.bytes + bytes > PIECE_BYTES {
            self.close();
        }
        self.bytes += bytes;
    }

    /// Adds a new series; one with very many samples is a new one in several pieces, and a known
    /// one when the later of them are written.
    fn add_new(&mut self, series: NewSeries) {
        let name_bytes = series.labels.as_key().len() + SAMPLE_BYTES_MAX;
        self.reserve(name_bytes);
        let without_samples = |new: &NewSeries| NewSeries {
            labels: new.labels.clone(),
            alias: None,
            samples: Vec::new(),
            histograms: Vec::new(),
        };
        let mut open = NewSeries { alias: series.alias.clone(), ..without_samples(&series) };
        let samples = series.samples.iter().map(|sample| PieceSample::Number(*sample));
        let histograms = series.histograms.iter().map(PieceSample::Histogram);
        for sample in samples.chain(histograms) {
            let bytes = sample.bytes_max();
            if self.bytes + bytes > PIECE_BYTES && !open.is_empty() {
                let full = std::mem::replace(&mut open, without_samples(&series));
                self.open.new_series.push(full);
                self.close();
                self.bytes += name_bytes;
            }
            self.bytes += bytes;
            match sample {
                PieceSample::Number(sample) => open.samples.push(sample),
                PieceSample::Histogram(sample) => open.histograms.push(sample.clone()),
            }
        }
        self.open.new_series.push(open);
    }
}

enum PieceSample<'a> {
    Number((TimeMs, f64)),
    Histogram(&'a (TimeMs, Arc<Histogram>)),
}

impl PieceSample<'_> {
    fn bytes_max(&self) -> usize {
        match self {
            Self::Number(_) => SAMPLE_BYTES_MAX,
            Self::Histogram((_, histogram)) => histogram_bytes_max(histogram),
        }
    }
}

#[cfg(test)]
mod tests;
