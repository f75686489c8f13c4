//! Samples that come in other forms than remote write: texts that are read piece by piece, line
//! protocol, OTLP. Each is taken in by batches, so that neither a large file nor a small one that
//! expands needs memory at once.

mod text;

use std::sync::Arc;

use egret_base::Limit;
use egret_metrics_model::{Labels, TimeMs};
use egret_metrics_wire::influx::{LineReader, Precision};
use egret_metrics_wire::otlp::{self, OtlpEncoding, OtlpOptions, OtlpValue};
use egret_metrics_wire::{LabelLimits, WireError};

use super::Series;
use super::ingest_batch::{RejectedSamples, label_limits};
use crate::api::write::{WriteCounts, WrittenValue};
use crate::core::metadata::{Describe, Description};
use crate::error::SeriesError;

pub use text::{Import, ImportFormat};

/// Samples that are taken in with one append.
const BATCH_SAMPLES: usize = 10_000;

/// What may be kept of a text until its line is whole.
const LINE_BYTES_MAX: Limit = Limit::new("line_bytes_max", 2 << 20);

/// Labelled samples that are taken in together.
struct Batch<'s> {
    series: &'s Series,
    limits: LabelLimits,
    samples: Vec<(Labels, TimeMs, WrittenValue)>,
    counts: WriteCounts,
}

impl<'s> Batch<'s> {
    fn new(series: &'s Series) -> Self {
        Self {
            series,
            limits: label_limits(series.config()),
            samples: Vec::new(),
            counts: WriteCounts::default(),
        }
    }

    /// The labels of a series, when they are in order; else notes that so many samples are refused.
    fn check_labels(&mut self, mut pairs: Vec<(&str, &str)>, samples: u64) -> Option<Labels> {
        match self.limits.check(&mut pairs) {
            Ok(()) => Some(Labels::from_sorted(pairs.into_iter())),
            Err(error) => {
                self.counts.rejected.add(samples, error);
                None
            }
        }
    }

    /// Adds a sample; those before it may be taken in now.
    async fn add(
        &mut self,
        labels: Labels,
        time_ms: TimeMs,
        value: impl Into<WrittenValue>,
    ) -> Result<(), SeriesError> {
        self.samples.push((labels, time_ms, value.into()));
        if self.samples.len() < BATCH_SAMPLES { Ok(()) } else { self.flush().await }
    }

    async fn flush(&mut self) -> Result<(), SeriesError> {
        let samples = std::mem::take(&mut self.samples);
        if samples.is_empty() {
            return Ok(());
        }
        let counts = self.series.append(samples.iter().cloned()).await?;
        self.counts.merge(counts);
        Ok(())
    }

    async fn finish(mut self) -> Result<WriteCounts, SeriesError> {
        self.flush().await?;
        Ok(self.counts)
    }
}

impl WriteCounts {
    /// Adds the counts of another batch of the same request.
    fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.histograms += other.histograms;
        self.late += other.late;
        self.rejected.merge(other.rejected);
        self.without_room = self.without_room.take().or(other.without_room);
        self.duplicates.samples += other.duplicates.samples;
        self.duplicates.histograms += other.duplicates.histograms;
    }
}

impl RejectedSamples {
    /// Adds what else was refused.
    pub(super) fn merge(&mut self, other: Self) {
        self.samples += other.samples;
        self.omitted_reasons += other.omitted_reasons;
        for reason in other.reasons {
            self.add(0, reason);
        }
    }
}

fn parse_utf8<'a>(body: &'a [u8], message: &'static str) -> Result<&'a str, SeriesError> {
    let text = std::str::from_utf8(body).map_err(|error| WireError::Message {
        message,
        problem: format!("it is not UTF-8: {error}"),
    });
    Ok(text?)
}

impl Series {
    /// Takes in lines of Influx's protocol, all of them with these labels besides their own. Lines
    /// without a time are of now.
    ///
    /// # Errors
    /// [`SeriesError::Wire`] when the body is not UTF-8, and those of writing. Lines that cannot be
    /// read are counted.
    pub async fn write_influx(
        &self,
        body: &[u8],
        precision: Precision,
        labels: &[(&str, &str)],
    ) -> Result<WriteCounts, SeriesError> {
        let mut lines = LineReader::new(parse_utf8(body, "line protocol")?, precision);
        let now_ms = self.now_ms();
        let mut batch = Batch::new(self);
        let mut name = String::new();
        while let Some(point) = lines.next() {
            let point = match point {
                Ok(point) => point,
                Err(error) => {
                    batch.counts.rejected.add(1, error);
                    continue;
                }
            };
            for (field, value) in &point.fields {
                point.metric_name(field, &mut name);
                let tags = point.tags.iter().map(|(name, value)| (&**name, &**value));
                let mut pairs = vec![(egret_metrics_model::METRIC_NAME, name.as_str())];
                pairs.extend(labels);
                pairs.extend(tags);
                if let Some(labels) = batch.check_labels(pairs, 1) {
                    let time_ms = point.time_ms.unwrap_or(now_ms);
                    batch.add(labels, time_ms, *value).await?;
                }
            }
        }
        batch.finish().await
    }

    /// Takes in a request of OTLP, not compressed, and returns the body of the answer to it.
    ///
    /// # Errors
    /// [`SeriesError::Wire`] when it cannot be read, and those of writing. Points that cannot be
    /// kept are counted in the answer.
    pub async fn write_otlp(
        &self,
        body: &[u8],
        encoding: OtlpEncoding,
    ) -> Result<Vec<u8>, SeriesError> {
        let options = OtlpOptions {
            translated_bytes_max: self.config().decoded_bytes_max.bytes(),
            ..OtlpOptions::default()
        };
        let mut translated = otlp::decode(body, encoding, &options)?;
        let mut batch = Batch::new(self);
        for sample in &translated.samples {
            let pairs = sample.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let Some(labels) = batch.check_labels(pairs.collect(), 1) else {
                continue;
            };
            match &sample.value {
                OtlpValue::Sample(sample) => {
                    batch.add(labels, sample.time_ms, sample.value).await?;
                }
                OtlpValue::Histogram(histogram) => {
                    let value = WrittenValue::Histogram(Arc::new(histogram.to_histogram()));
                    batch.add(labels, histogram.time_ms, value).await?;
                }
            }
        }
        let rejected = batch.finish().await?.rejected;
        for metadata in &translated.metadata {
            self.describe(Description {
                metric: &metadata.metric,
                kind: metadata.kind,
                unit: &metadata.unit,
                help: &metadata.help,
            });
        }
        translated.rejected_points += rejected.samples;
        translated.reasons.extend(rejected.reasons);
        Ok(otlp::encode_response(&translated, encoding))
    }
}
