//! OTLP/HTTP metrics, protobuf and JSON: `ExportMetricsServiceRequest`, translated as Prometheus
//! does by default.
//!
//! Gauges and sums become a series, of which a sum that only rises is named `_total`; histograms
//! become `_bucket`, `_count` and `_sum`; exponential histograms become native ones; summaries
//! become quantiles. Of the resource, `service.namespace/service.name` is `job` and
//! `service.instance.id` is `instance`; what else it has is on `target_info`. Sums and histograms
//! that are not cumulative are refused, point by point, with a reason: adding them up takes a
//! memory of what came before that a database does not have.
//!
//! Specification: opentelemetry.io/docs/specs/otlp.

mod labels;
mod message;
mod names;
mod points;

use egret_base::limit::Limit;
use prost::Message as _;

use super::encode::{put_message, put_number, put_text};
use super::error::WireError;
use super::{MetricKind, WireHistogram, WireSample};
use message::Request;

/// Encoding of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// Protobuf, the content type `application/x-protobuf`.
    Protobuf,
    /// JSON, the content type `application/json`.
    Json,
}

/// Options of the translation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpOptions {
    /// Attributes of the resource that become labels of every series.
    pub promoted_resource_attributes: Vec<String>,
    /// Bytes that the samples of a request may take. Each has labels of its own, and the
    /// resource's: without this, a small body could ask for terabytes.
    pub translated_bytes_max: u64,
}

impl Default for OtlpOptions {
    fn default() -> Self {
        Self { promoted_resource_attributes: Vec::new(), translated_bytes_max: 1 << 30 }
    }
}

/// Value that a point was translated to.
#[derive(Clone, Debug, PartialEq)]
pub enum OtlpValue {
    /// A number, with its time.
    Sample(WireSample),
    /// A native histogram, with its time.
    Histogram(Box<WireHistogram>),
}

/// One sample of one series. The next may be of the same.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpSample {
    /// Sorted by name, each once, none empty; `__name__` among them.
    pub labels: Vec<(String, String)>,
    /// Value of the sample.
    pub value: OtlpValue,
}

/// Metadata of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpMetadata {
    /// Name of the metric, without `_bucket` and the like.
    pub metric: String,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Description of the metric, for people.
    pub help: String,
    /// Unit of the metric, in words.
    pub unit: String,
}

/// A request as samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtlpBatch {
    /// In the order of the request; those of `target_info` follow those of their resource.
    pub samples: Vec<OtlpSample>,
    /// One entry a metric.
    pub metadata: Vec<OtlpMetadata>,
    /// Points that were refused…
    pub rejected_points: u64,
    /// …and why: each reason once, ten at most.
    pub reasons: Vec<String>,
    /// What the samples take, about.
    bytes: u64,
    bytes_max: u64,
}

impl OtlpBatch {
    /// Whether more may be added. Must be asked before samples are made.
    fn has_room(&self) -> bool {
        self.bytes <= self.bytes_max
    }

    fn push(&mut self, labels: Vec<(String, String)>, value: OtlpValue) {
        let texts = labels.iter().map(|(name, value)| 64 + name.len() + value.len());
        self.bytes += 64 + texts.sum::<usize>() as u64;
        self.samples.push(OtlpSample { labels, value });
    }

    fn check_size(&self) -> Result<(), WireError> {
        let limit = Limit::new("translated_bytes_max", self.bytes_max);
        Ok(limit.check(self.bytes)?)
    }

    fn reject(&mut self, points: usize, reason: String) {
        self.rejected_points += points as u64;
        if self.reasons.len() < 10 && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}

/// Reads and translates an uncompressed body.
///
/// # Errors
/// [`WireError`] when it cannot be read, or would become more samples than allowed. What can be
/// read but not translated is counted in [`OtlpBatch::rejected_points`].
pub fn decode(
    body: &[u8],
    encoding: OtlpEncoding,
    options: &OtlpOptions,
) -> Result<OtlpBatch, WireError> {
    let request = match encoding {
        OtlpEncoding::Protobuf => Request::decode(body).map_err(|error| WireError::Message {
            message: "ExportMetricsServiceRequest",
            problem: error.to_string(),
        })?,
        OtlpEncoding::Json => serde_json::from_slice(body)
            .map_err(|error| WireError::Json { problem: error.to_string() })?,
    };
    let mut batch = OtlpBatch { bytes_max: options.translated_bytes_max, ..OtlpBatch::default() };
    for resource_metrics in &request.resource_metrics {
        let empty = message::Resource::default();
        let resource = resource_metrics.resource.as_ref().unwrap_or(&empty);
        let resource = labels::ResourceLabels::new(&resource.attributes, options);
        let mut times = labels::Times::default();
        for metric in resource_metrics.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            points::translate(metric, &resource, &mut times, &mut batch);
            batch.check_size()?;
        }
        resource.append_target_info(&times, &mut batch);
    }
    batch.check_size()?;
    Ok(batch)
}

/// The answer to a request: `ExportMetricsServiceResponse`, with what was refused if anything was.
pub fn encode_response(translated: &OtlpBatch, encoding: OtlpEncoding) -> Vec<u8> {
    let rejected = translated.rejected_points;
    let reasons = translated.reasons.join("; ");
    match encoding {
        OtlpEncoding::Protobuf => {
            let mut body = Vec::new();
            if rejected > 0 {
                put_message(1, &mut body, |partial| {
                    put_number(1, rejected, partial);
                    put_text(2, &reasons, partial);
                });
            }
            body
        }
        OtlpEncoding::Json if rejected == 0 => b"{}".to_vec(),
        OtlpEncoding::Json => {
            let partial = serde_json::json!({
                "partialSuccess": {
                    "rejectedDataPoints": rejected.to_string(),
                    "errorMessage": reasons,
                }
            });
            partial.to_string().into_bytes()
        }
    }
}

#[cfg(test)]
mod tests;
