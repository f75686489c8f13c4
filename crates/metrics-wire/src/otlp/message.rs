//! The messages of OTLP metrics, as much of them as is needed, for protobuf and JSON alike. Members
//! of a `oneof` are optional fields here, which on the wire is the same.
//!
//! Schema: github.com/open-telemetry/opentelemetry-proto, 1.x. JSON: the specification's "JSON
//! Protobuf Encoding", in which names are in lower camel case, whole numbers of 64 bits may be
//! strings, and what is unknown is ignored.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

use egret_metrics_model::normalize_nan;

/// What a client sends.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    #[prost(int64, optional, tag = "3")]
    #[serde(deserialize_with = "optional_integer")]
    pub int_value: Option<i64>,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "optional_double")]
    pub double_value: Option<f64>,
    #[prost(message, optional, tag = "5")]
    pub array_value: Option<ArrayValue>,
    #[prost(message, optional, tag = "6")]
    pub kvlist_value: Option<KeyValueList>,
    #[prost(bytes = "vec", optional, tag = "7")]
    #[serde(deserialize_with = "optional_base64")]
    pub bytes_value: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(message, optional, tag = "5")]
    pub gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    pub sum: Option<Sum>,
    #[prost(message, optional, tag = "9")]
    pub histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")]
    pub exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")]
    pub summary: Option<Summary>,
}

/// Of [`Sum::aggregation_temporality`] and the like.
pub(crate) const CUMULATIVE: i32 = 2;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<ExponentialPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "temporality")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<SummaryPoint>,
}

/// The bit of `flags` that says that the series has ended.
pub(crate) const NO_RECORDED_VALUE: u32 = 1;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NumberPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "optional_double")]
    pub as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    #[serde(deserialize_with = "optional_integer")]
    pub as_int: Option<i64>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HistogramPoint {
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "unsigned")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "optional_double")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    #[serde(deserialize_with = "unsigned_list")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    #[serde(deserialize_with = "double_list")]
    pub explicit_bounds: Vec<f64>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExponentialPoint {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "unsigned")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "optional_double")]
    pub sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    pub scale: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "unsigned")]
    pub zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    pub negative: Option<Buckets>,
    #[prost(uint32, tag = "10")]
    pub flags: u32,
    #[prost(double, tag = "14")]
    #[serde(deserialize_with = "double")]
    pub zero_threshold: f64,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Buckets {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    #[serde(deserialize_with = "unsigned_list")]
    pub bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SummaryPoint {
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "unsigned")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "unsigned")]
    pub count: u64,
    #[prost(double, tag = "5")]
    #[serde(deserialize_with = "double")]
    pub sum: f64,
    #[prost(message, repeated, tag = "6")]
    pub quantile_values: Vec<ValueAtQuantile>,
    #[prost(uint32, tag = "8")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ValueAtQuantile {
    #[prost(double, tag = "1")]
    #[serde(deserialize_with = "double")]
    pub quantile: f64,
    #[prost(double, tag = "2")]
    #[serde(deserialize_with = "double")]
    pub value: f64,
}

/// A number as JSON has it: itself, or in quotes. Null is a number that is not there.
enum Number {
    Null,
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Text(String),
}

struct NumberVisitor;

impl de::Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, or one in quotes")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Number, E> {
        Ok(Number::Null)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Number, E> {
        Ok(Number::Unsigned(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Number, E> {
        Ok(Number::Signed(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Number, E> {
        Ok(Number::Double(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
        Ok(Number::Text(text.into()))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

impl Number {
    fn unsigned<E: de::Error>(self) -> Result<u64, E> {
        let not_integer = |what: String| E::custom(format!("{what} is not an integer of 64 bits"));
        match self {
            Self::Null => Ok(Default::default()),
            Self::Unsigned(number) => Ok(number),
            Self::Signed(number) => Err(not_integer(number.to_string())),
            Self::Double(number) => Err(not_integer(number.to_string())),
            Self::Text(text) => text.parse().map_err(|_| not_integer(text)),
        }
    }

    fn integer<E: de::Error>(self) -> Result<i64, E> {
        let not_integer = |what: String| E::custom(format!("{what} is not an integer of 64 bits"));
        match self {
            Self::Null => Ok(Default::default()),
            Self::Unsigned(number) => {
                number.try_into().map_err(|_| not_integer(number.to_string()))
            }
            Self::Signed(number) => Ok(number),
            Self::Double(number) => Err(not_integer(number.to_string())),
            Self::Text(text) => text.parse().map_err(|_| not_integer(text)),
        }
    }

    fn double<E: de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Null => Ok(Default::default()),
            Self::Unsigned(number) => Ok(number as f64),
            Self::Signed(number) => Ok(number as f64),
            Self::Double(number) => Ok(number),
            // "NaN", "Infinity" and "-Infinity" among them.
            Self::Text(text) => text
                .parse()
                .map(normalize_nan)
                .map_err(|_| E::custom(format!("{text} is not a number"))),
        }
    }
}

fn unsigned<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Number::deserialize(deserializer)?.unsigned()
}

fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Number::deserialize(deserializer)?.double()
}

fn optional_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Null => Ok(None),
        number => number.integer().map(Some),
    }
}

fn optional_double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Null => Ok(None),
        number => number.double().map(Some),
    }
}

fn unsigned_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    let numbers = Vec::<Number>::deserialize(deserializer)?;
    numbers.into_iter().map(Number::unsigned).collect()
}

fn double_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Number>::deserialize(deserializer)?;
    numbers.into_iter().map(Number::double).collect()
}

/// A number, or a name, which some senders write.
fn temporality<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    match Number::deserialize(deserializer)? {
        Number::Text(name) => Ok(match name.as_str() {
            "AGGREGATION_TEMPORALITY_DELTA" => 1,
            "AGGREGATION_TEMPORALITY_CUMULATIVE" => CUMULATIVE,
            _ => 0,
        }),
        number => Ok(number.integer::<D::Error>()?.try_into().unwrap_or(0)),
    }
}

fn optional_base64<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    use base64::Engine as _;
    let text = Option::<String>::deserialize(deserializer)?;
    let engine = base64::engine::general_purpose::STANDARD;
    let bytes = text.map(|text| engine.decode(text)).transpose();
    bytes.map_err(de::Error::custom)
}
