//! What can be wrong with a request, and where.

use egret_base::error::{Coded, Kind};
use egret_base::limit::LimitExceeded;

use super::remote_write_v2::KEY_BYTES_MAX;

/// What is wrong with a body. Nothing of it counts then, unless it is [about one series](WireError::is_of_series).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field goes beyond the end of the message it is in.
    #[error("{message} is cut off at byte {at}: send the whole message")]
    Truncated {
        /// The protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A varint of more than ten bytes or 64 bits.
    #[error("{message} has a number of more than 64 bits at byte {at}")]
    VarintTooLong {
        /// The protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// Field number 0, a group, or a wire type that there is not.
    #[error("{message} has a field key {key} that cannot be at byte {at}")]
    BadKey {
        /// The protobuf message.
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
        /// The protobuf message.
        message: &'static str,
        /// The field's number.
        field: u32,
        /// What stands there.
        wire_type: u8,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A string that is none.
    #[error("{message} has a string that is not UTF-8 at byte {at}")]
    NotUtf8 {
        /// The protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A reference beyond the table of symbols.
    #[error("{message} refers to symbol {reference} at byte {at}, but there are {symbols}")]
    BadReference {
        /// The protobuf message.
        message: &'static str,
        /// The reference.
        reference: u64,
        /// How many symbols there are.
        symbols: usize,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A label's name without its value.
    #[error(
        "{message} has an odd number of label references at byte {at}: name and value go together"
    )]
    OddReferences {
        /// The protobuf message.
        message: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// A native histogram that contradicts itself.
    #[error("histogram at byte {at}: {problem}")]
    Histogram {
        /// What is wrong.
        problem: &'static str,
        /// Bytes from the start of the uncompressed body.
        at: usize,
    },
    /// Not what its content encoding says.
    #[error("body is not {encoding}: {problem}")]
    Compression {
        /// The content encoding.
        encoding: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A message that cannot be read.
    #[error("{message} is malformed: {problem}")]
    Message {
        /// The protobuf message.
        message: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// JSON that is not of the shape due.
    #[error("json is not of the shape due: {problem}")]
    Json {
        /// What is wrong, with line and column.
        problem: String,
    },
    /// Larger than a named limit.
    #[error("limit {} is {}, but {} came: send less or raise the setting", .0.name, .0.max, .0.asked)]
    Limit(LimitExceeded),
}

impl WireError {
    /// Whether it is about one series alone, of which the protobuf is well formed: the others of the request are kept.
    pub fn is_of_series(&self) -> bool {
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

impl Coded for WireError {
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
        /// Which of the series' labels, from 0.
        index: usize,
    },
    /// Twice the same name.
    #[error("label name {name:?} occurs twice")]
    Duplicate {
        /// The name.
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
        /// The limit.
        limit: LimitExceeded,
    },
}

impl Coded for LabelError {
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
    /// Which, from 1.
    pub line: u64,
    /// Where in it, from 1.
    pub column: u64,
    /// What is wrong.
    pub problem: &'static str,
}

impl Coded for LineError {
    fn code(&self) -> &'static str {
        "bad_line"
    }

    fn kind(&self) -> Kind {
        Kind::Invalid
    }
}
