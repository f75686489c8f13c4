//! A native histogram of a line, as an object:
//!
//! ```json
//! {"timestamp":1700000000000,"count":3,"sum":4.5,"schema":0,
//!  "zero_threshold":0.001,"zero_count":1,"positive_spans":[[0,2]],
//!  "positive_counts":[1,1],"reset":"unknown"}
//! ```
//!
//! Each span is how many buckets are left out before it and how many are in it; counts are those of
//! each bucket by itself. What is empty is left out. `"float":true` says that counts are no
//! integers.

use egret_metrics_model::TimeMs;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::{JsonSampleValue, append_value};
use crate::exposition::append_number;
use crate::histogram::{WireBuckets, WireCount, WireHistogram, WireSpan};

/// What histograms say of resets, by the number that remote write has for it.
const RESETS: [&str; 4] = ["unknown", "reset", "not_reset", "gauge"];

/// A histogram of a line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonHistogram {
    timestamp: TimeMs,
    count: Count,
    sum: JsonSampleValue,
    schema: i32,
    #[serde(default)]
    zero_threshold: f64,
    #[serde(default)]
    zero_count: Count,
    #[serde(default)]
    positive_spans: Vec<(i32, u32)>,
    #[serde(default)]
    positive_counts: Vec<Count>,
    #[serde(default)]
    negative_spans: Vec<(i32, u32)>,
    #[serde(default)]
    negative_counts: Vec<Count>,
    #[serde(default)]
    custom_bounds: Vec<f64>,
    #[serde(default)]
    float: bool,
    #[serde(default)]
    reset: Reset,
}

/// A number of observations: exact where it is an integer.
#[derive(Clone, Copy, Debug)]
enum Count {
    Integer(u64),
    Float(f64),
}

#[derive(Debug, Default)]
struct Reset(u8);

impl Default for Count {
    fn default() -> Self {
        Self::Integer(0)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum IntegerOrOther {
            Integer(u64),
            Other(JsonSampleValue),
        }
        Ok(match IntegerOrOther::deserialize(deserializer)? {
            IntegerOrOther::Integer(count) => Self::Integer(count),
            IntegerOrOther::Other(JsonSampleValue(count)) => Self::Float(count),
        })
    }
}

impl<'de> Deserialize<'de> for Reset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let number = RESETS.iter().position(|known| *known == name);
        let unknown = || D::Error::custom(format_args!("reset {name:?} is not one of {RESETS:?}"));
        number.map(|number| Self(number as u8)).ok_or_else(unknown)
    }
}

impl Count {
    fn as_float(self) -> f64 {
        match self {
            Self::Integer(count) => count as f64,
            Self::Float(count) => count,
        }
    }
}

impl JsonHistogram {
    /// The same as remote write has it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn to_wire(&self) -> Result<WireHistogram, String> {
        let is_float = self.float;
        let to_wire_count = |count: Count| match (is_float, count) {
            (true, count) => Ok(WireCount::Float(count.as_float())),
            (false, Count::Integer(count)) => Ok(WireCount::Integer(count)),
            (false, Count::Float(count)) => Err(format!(
                "the count {count} of a histogram is not an integer, and \"float\" is not true"
            )),
        };
        let to_wire_buckets = |spans: &[(i32, u32)], counts: &[Count]| {
            let mut buckets = WireBuckets::default();
            let span =
                |(offset, length): &(i32, u32)| WireSpan { offset: *offset, length: *length };
            buckets.spans.extend(spans.iter().map(span));
            let mut previous_count = 0_u64;
            for json_count in counts {
                match to_wire_count(*json_count)? {
                    WireCount::Float(count) => buckets.counts.push(count),
                    WireCount::Integer(count) => {
                        buckets.deltas.push(count.wrapping_sub(previous_count) as i64);
                        previous_count = count;
                    }
                }
            }
            Ok::<_, String>(buckets)
        };
        let histogram = WireHistogram {
            time_ms: self.timestamp,
            count: to_wire_count(self.count)?,
            zero_count: to_wire_count(self.zero_count)?,
            sum: self.sum.0,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            negative: to_wire_buckets(&self.negative_spans, &self.negative_counts)?,
            positive: to_wire_buckets(&self.positive_spans, &self.positive_counts)?,
            reset_hint: self.reset.0,
            custom_values: self.custom_bounds.clone(),
        };
        match histogram.find_problem() {
            Some(problem) => Err(format!("of a histogram, {problem}")),
            None => Ok(histogram),
        }
    }
}

pub(super) fn append_histogram(histogram: &WireHistogram, out: &mut String) {
    let push_field_name = |name: &str, out: &mut String| {
        out.push_str(",\"");
        out.push_str(name);
        out.push_str("\":");
    };
    out.push_str("{\"timestamp\":");
    out.push_str(&histogram.time_ms.to_string());
    push_field_name("count", out);
    append_count(histogram.count, out);
    push_field_name("sum", out);
    append_value(histogram.sum, out);
    push_field_name("schema", out);
    out.push_str(&histogram.schema.to_string());
    push_field_name("zero_threshold", out);
    append_number(histogram.zero_threshold, out);
    push_field_name("zero_count", out);
    append_count(histogram.zero_count, out);
    for (sign, buckets) in [("positive", &histogram.positive), ("negative", &histogram.negative)] {
        if buckets.spans.is_empty() {
            continue;
        }
        push_field_name(&format!("{sign}_spans"), out);
        append_list(&buckets.spans, out, |span, out| {
            out.push_str(&format!("[{},{}]", span.offset, span.length));
        });
        push_field_name(&format!("{sign}_counts"), out);
        let mut count = 0_u64;
        if histogram.is_float() {
            append_list(&buckets.counts, out, |count, out| append_value(*count, out))
        } else {
            append_list(&buckets.deltas, out, |delta, out| {
                count = count.wrapping_add_signed(*delta);
                out.push_str(&count.to_string());
            })
        }
    }
    if !histogram.custom_values.is_empty() {
        push_field_name("custom_bounds", out);
        append_list(&histogram.custom_values, out, |bound, out| {
            append_number(*bound, out);
        });
    }
    if histogram.is_float() {
        push_field_name("float", out);
        out.push_str("true");
    }
    push_field_name("reset", out);
    out.push_str(&format!("\"{}\"", RESETS[usize::from(histogram.reset_hint)]));
    out.push('}');
}

fn append_count(count: WireCount, out: &mut String) {
    match count {
        WireCount::Integer(count) => out.push_str(&count.to_string()),
        WireCount::Float(count) => append_value(count, out),
    }
}

pub(super) fn append_list<T>(
    items: &[T],
    out: &mut String,
    mut append: impl FnMut(&T, &mut String),
) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        append(item, out);
    }
    out.push(']');
}
