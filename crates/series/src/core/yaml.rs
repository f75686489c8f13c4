//! YAML as Prometheus's files have it, read strictly and within bounds: unknown properties,
//! duplicates and unbounded alias expansion are errors.

use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_saphyr::Spanned;

use egret_metrics_model::number::{DURATION_MS_MAX, parse_duration_ms};

/// A text is at most so long, in bytes.
pub const TEXT_BYTES_MAX: usize = 8 << 20;

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct YamlError {
    /// Where, from 1; 0 when it concerns all of the text.
    pub line: u64,
    /// Where in the line, from 1.
    pub column: u64,
    /// Description of what is wrong.
    pub problem: String,
}

/// Reads a text. One without anything in it is what `T` is by default.
///
/// # Errors
/// [`YamlError`] when it is no YAML, is not of the shape due, or is too large.
pub fn parse<T: DeserializeOwned + Default>(text: &str) -> Result<T, YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        let size = text.len();
        return Err(YamlError {
            line: 0,
            column: 0,
            problem: format!("{size} bytes are more than {TEXT_BYTES_MAX}: split the file"),
        });
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let result: Result<Option<T>, _> = serde_saphyr::from_str_with_options(text, options);
    match result {
        Ok(value) => Ok(value.unwrap_or_default()),
        Err(error) => {
            let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
            let message = error.to_string();
            // The place is said before it.
            let problem = message.split(" at line ").next().unwrap_or(&message);
            Err(YamlError { line, column, problem: problem.replace('\n', " ") })
        }
    }
}

/// The line and column, from 1, where a value stands.
pub fn position<T>(value: &Spanned<T>) -> (u64, u64) {
    (value.referenced.line(), value.referenced.column())
}

/// A duration as Prometheus's files have it, `1h30m` or `0`, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DurationMs(pub i64);

/// By the largest unit that says it exactly.
impl fmt::Display for DurationMs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        let largest_unit = units.iter().find(|(unit, _)| self.0 != 0 && self.0 % unit == 0);
        match largest_unit {
            Some((unit, name)) => write!(formatter, "{}{name}", self.0 / unit),
            None => write!(formatter, "{}ms", self.0),
        }
    }
}

impl Serialize for DurationMs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let has_unit = text == "0" || text.ends_with(|c: char| c.is_ascii_alphabetic());
        let read =
            parse_duration_ms(&text).filter(|ms| has_unit && (0..=DURATION_MS_MAX).contains(ms));
        read.map(Self).ok_or_else(|| {
            D::Error::custom(format!("not a valid duration string: {text:?}, write 1h30m"))
        })
    }
}

#[cfg(test)]
mod tests;
