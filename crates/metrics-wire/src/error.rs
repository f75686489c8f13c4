//! Errors of malformed requests, each with its position.

use egret_base::error::{CodedError, Kind};
use egret_base::limit::LimitExceeded;

use super::key_limit::KEY_BYTES_MAX;

/// What is wrong with a body. Nothing of it counts then, unless it is [about one
/// series](WireError::is_of_series).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field goes beyond the end of the message it is in.
    #[error("{message} is truncated at byte {at}: send the whole message")]
    Truncated {
        /// Name of the protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A varint of more than ten bytes or 64 bits.
    #[error("{message} has a number of more than 64 bits at byte {at}")]
    VarintTooLong {
        /// Name of the protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// Field number 0, a group, or an unknown wire type.
    #[error("{message} has a field key {key} that cannot be at byte {at}")]
    BadKey {
        /// Name of the protobuf message.
        message: &'static str,
        /// Field number and wire type.
        key: u64,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A field that has another type in the schema.
    #[error(
        "field {field} of {message} has wire type {wire_type} at byte {at}, which is not its type"
    )]
    WrongWireType {
        /// Name of the protobuf message.
        message: &'static str,
        /// Number of the field.
        field: u32,
        /// Wire type that was found.
        wire_type: u8,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A string that is none.
    #[error("{message} has a string that is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Name of the protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A reference beyond the table of symbols.
    #[error("{message} refers to symbol {reference} at byte {at}, but there are {symbols}")]
    BadReference {
        /// Name of the protobuf message.
        message: &'static str,
        /// Index of the symbol that is referred to.
        reference: u64,
        /// Number of symbols in the request.
        symbols: usize,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A label's name without its value.
    #[error(
        "{message} has an odd number of label references at byte {at}: name and value go together"
    )]
    OddReferences {
        /// Name of the protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A native histogram that contradicts itself.
    #[error("histogram at byte {at}: {problem}")]
    Histogram {
        /// Description of what is wrong.
        problem: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// Not what its content encoding says.
    #[error("body is not {encoding}: {problem}")]
    Compression {
        /// Name of the content encoding.
        encoding: &'static str,
        /// Description of what is wrong.
        problem: String,
    },
    /// A message that cannot be read.
    #[error("{message} is malformed: {problem}")]
    Message {
        /// Name of the protobuf message.
        message: &'static str,
        /// Description of what is wrong.
        problem: String,
    },
    /// JSON that is not of the shape due.
    #[error("json does not have the expected structure: {problem}")]
    Json {
        /// Description of what is wrong, with line and column.
        problem: String,
    },
    /// Larger than a named limit.
    #[error("limit {} is {}, but {} came: send less or raise the setting", .0.name, .0.max, .0.asked)]
    Limit(LimitExceeded),
}

impl WireError {
    /// Whether it is about one series alone, of which the protobuf is well formed: the others of
    /// the request are kept.
    pub fn is_series_error(&self) -> bool {
        match self {
            Self::NotUtf8 { .. }
            | Self::BadReference { .. }
            | Self::OddReferences { .. }
            | Self::Histogram { .. } => true,
            Self::Limit(limit) => limit.name == KEY_BYTES_MAX.name,
            _ => false,
        }
    }
}

impl From<LimitExceeded> for WireError {
    fn from(limit: LimitExceeded) -> Self {
        Self::Limit(limit)
    }
}

impl CodedError for WireError {
    fn code(&self) -> &'static str {
        match self {
            Self::Limit(_) => "body_too_large",
            Self::Compression { .. } => "bad_compression",
            Self::Json { .. } => "bad_json",
            Self::Histogram { .. } => "bad_histogram",
            Self::BadReference { .. } | Self::OddReferences { .. } => "bad_symbol_reference",
            _ => "bad_protobuf",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Limit(_) => Kind::TooLarge,
            _ => Kind::Invalid,
        }
    }
}

/// Why a single series is refused. The others of the request are kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The fields of a label are no fields.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A label without a name.
    #[error("label {index} has an empty name")]
    EmptyName {
        /// Index of the label in the series, from 0.
        index: usize,
    },
    /// Twice the same name.
    #[error("label name {name:?} occurs twice")]
    Duplicate {
        /// Name of the label.
        name: String,
    },
    /// A series without a name.
    #[error("series has no metric name: set the label __name__")]
    NoMetricName,
    /// Too many labels, or a name or value that is too long.
    #[error("label {name:?}: {limit}")]
    Limit {
        /// The label's name, or how it begins.
        name: String,
        /// Limit that was exceeded.
        limit: LimitExceeded,
    },
}

impl CodedError for LabelError {
    fn code(&self) -> &'static str {
        match self {
            Self::Wire(error) => error.code(),
            Self::EmptyName { .. } => "empty_label_name",
            Self::Duplicate { .. } => "duplicate_label",
            Self::NoMetricName => "no_metric_name",
            Self::Limit { .. } => "label_limit",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}

/// Why a line of a text protocol is refused. The other lines can be read all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, byte {column}: {problem}")]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: u64,
    /// Column in the line in bytes, from 1.
    pub column: u64,
    /// Description of what is wrong.
    pub problem: &'static str,
}

impl CodedError for LineError {
    fn code(&self) -> &'static str {
        "bad_line"
    }

    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}
