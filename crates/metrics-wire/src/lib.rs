//! The protocols by which samples come in and go out, and nothing else: bytes in, values out, and
//! back. No I/O, no clock, nothing that waits. What is not well formed is an error that says where;
//! nothing panics.
//!
//! Samples are handed out with the bits they came with, so that a staleness marker stays one.

pub mod encode;
pub mod error;
pub mod exposition;
pub mod histogram;
pub mod influx;
pub mod json_lines;
mod key_limit;
pub mod labels;
pub mod otlp;
mod protobuf;
pub mod remote_read;
pub mod remote_write_v1;
pub mod remote_write_v2;
mod samples;
pub mod snappy;
pub mod table;
pub(crate) mod xor_chunk;

pub use error::{LabelError, LineError, WireError};
pub use histogram::{WireCount, WireHistogram, WireSpan};
pub use labels::LabelLimits;
pub use samples::{SampleFields, WireSample};

/// What kind of metric a name stands for. The numbers are those of both versions of remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// The sender did not say.
    #[default]
    Unknown,
    /// Only goes up, or begins anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by bucket, cumulative.
    Histogram,
    /// Counts by bucket that go up and down.
    GaugeHistogram,
    /// Quantiles, computed by the program.
    Summary,
    /// Labels of which the value is always 1.
    Info,
    /// One of several states.
    StateSet,
}

impl MetricKind {
    /// The kind with a number; what is not known is [`MetricKind::Unknown`].
    pub fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Counter,
            2 => Self::Gauge,
            3 => Self::Histogram,
            4 => Self::GaugeHistogram,
            5 => Self::Summary,
            6 => Self::Info,
            7 => Self::StateSet,
            _ => Self::Unknown,
        }
    }

    /// As the text format and the HTTP API write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }
}
