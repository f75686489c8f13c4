//! A series a line, as JSON:
//! `{"metric":{"__name__":"up","job":"a"},"values":[1,0],"timestamps":[1700000000000,…]}`. The form
//! that VictoriaMetrics exports and imports; and the one text that loses nothing: `null` is a
//! staleness marker, and what JSON has no number for is `"NaN"`, `"+Inf"` or `"-Inf"`. Times are
//! milliseconds since 1970. A series with native histograms has a list of them besides,
//! `histograms`, which only Egret knows.

mod histogram;

use std::borrow::Cow;
use std::fmt;

use egret_metrics_model::{
    Labels, NORMAL_NAN_BITS, STALE_NAN_BITS, SeriesSamples, TimeMs, is_stale,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use self::histogram::{JsonHistogram, append_histogram, append_list};
use super::exposition::append_number;
use super::histogram::WireHistogram;

/// A series with its samples, as a line has it.
#[derive(Debug, Deserialize)]
pub struct JsonLine<'a> {
    /// Name and value of each label, the metric's name among them.
    #[serde(borrow, rename = "metric")]
    pub labels: JsonLabels<'a>,
    values: Vec<JsonSampleValue>,
    timestamps: Vec<TimeMs>,
    #[serde(default)]
    histograms: Vec<JsonHistogram>,
}

/// The labels of a line, in its order.
#[derive(Debug)]
pub struct JsonLabels<'a>(pub Vec<(Cow<'a, str>, Cow<'a, str>)>);

#[derive(Clone, Copy, Debug)]
struct JsonSampleValue(f64);

/// A text that borrows where it can.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonLabels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(Cow<'de, str>, Cow<'de, str>)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((BorrowedText(name), BorrowedText(value))) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(Pairs).map(Self)
    }
}

impl<'de> Deserialize<'de> for JsonSampleValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FloatVisitor;

        impl Visitor<'_> for FloatVisitor {
            type Value = f64;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number, null, \"NaN\", \"+Inf\" or \"-Inf\"")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
                Ok(value)
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
                Ok(value as f64)
            }

            fn visit_unit<E: Error>(self) -> Result<f64, E> {
                Ok(f64::from_bits(STALE_NAN_BITS))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
                match text {
                    "NaN" => Ok(f64::from_bits(NORMAL_NAN_BITS)),
                    "+Inf" | "Inf" | "Infinity" => Ok(f64::INFINITY),
                    "-Inf" | "-Infinity" => Ok(f64::NEG_INFINITY),
                    other => Err(E::custom(format_args!("{other:?} is not a value"))),
                }
            }
        }

        deserializer.deserialize_any(FloatVisitor).map(Self)
    }
}

impl<'a> JsonLine<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let line: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match (line.values.len(), line.timestamps.len()) {
            (values, times) if values != times => {
                Err(format!("there are {values} values and {times} timestamps"))
            }
            _ => Ok(line),
        }
    }

    /// Its native histograms.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn histograms(&self) -> impl Iterator<Item = Result<WireHistogram, String>> {
        self.histograms.iter().map(JsonHistogram::to_wire)
    }

    /// Its samples that are numbers.
    pub fn samples(&self) -> impl Iterator<Item = (TimeMs, f64)> {
        let values = self.values.iter().map(|JsonSampleValue(value)| *value);
        self.timestamps.iter().copied().zip(values)
    }
}

/// Appends a series with its samples.
pub fn append_line(labels: &Labels, samples: &SeriesSamples, out: &mut String) {
    out.push_str("{\"metric\":{");
    for (index, (name, value)) in labels.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        append_text(name, out);
        out.push(':');
        append_text(value, out);
    }
    out.push_str("},\"values\":");
    append_list(&samples.values, out, |value, out| append_value(*value, out));
    out.push_str(",\"timestamps\":");
    append_list(&samples.times_ms, out, |time_ms, out| {
        out.push_str(&time_ms.to_string());
    });
    if !samples.histograms.is_empty() {
        out.push_str(",\"histograms\":");
        let times_ms = samples.histogram_times_ms.iter();
        let all: Vec<_> = times_ms.zip(&samples.histograms).collect();
        append_list(&all, out, |(time_ms, histogram), out| {
            append_histogram(&WireHistogram::from_histogram(**time_ms, histogram), out);
        });
    }
    out.push_str("}\n");
}

fn append_value(value: f64, out: &mut String) {
    match value {
        value if value.is_finite() => append_number(value, out),
        value if is_stale(value) => out.push_str("null"),
        value => {
            out.push('"');
            append_number(value, out);
            out.push('"');
        }
    }
}

fn append_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a text is JSON"));
}

#[cfg(test)]
mod tests;
