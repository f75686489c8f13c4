//! The labels of a series not known yet, from the bytes in which remote write 1.0 has them.
//!
//! These bytes also are what a series is looked up by, whatever protocol it came with: see
//! [`append_label_field`] for the one form in which all known senders write them.

use egret_base::codec::put_varint;
use egret_base::limit::Limit;
use egret_metrics_model::METRIC_NAME;

use super::error::{LabelError, WireError};
use super::protobuf::Message;

const MESSAGE: &str = "Label";

/// Key of a label in its series: field 1, bytes.
pub(crate) const LABEL_KEY: u8 = 0x0a;
/// Key of its name in a label: field 1, bytes.
pub(crate) const NAME_KEY: u8 = 0x0a;
/// Key of its value: field 2, bytes.
pub(crate) const VALUE_KEY: u8 = 0x12;

/// How many labels a series may have, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelLimits {
    /// Labels of a series, its name being one.
    pub labels_per_series_max: u64,
    /// Bytes of a name.
    pub label_name_bytes_max: u64,
    /// Bytes of a value.
    pub label_value_bytes_max: u64,
}

impl Default for LabelLimits {
    fn default() -> Self {
        Self {
            labels_per_series_max: 128,
            label_name_bytes_max: 1_024,
            label_value_bytes_max: 64 * 1024,
        }
    }
}

impl LabelLimits {
    /// Checks labels, which may be in any order, and sorts them by name. Empty values are left out:
    /// to Prometheus, a label without a value is not there.
    ///
    /// # Errors
    /// [`LabelError`] of the first invalid label.
    pub fn check(&self, labels: &mut Vec<(&str, &str)>) -> Result<(), LabelError> {
        let check_limit = |name: &str, limit: Limit, asked: usize| {
            limit.check(asked as u64).map_err(|limit| {
                let name = name.chars().take(64).collect();
                LabelError::Limit { name, limit }
            })
        };
        let count = Limit::new("labels_per_series_max", self.labels_per_series_max);
        let names = Limit::new("label_name_bytes_max", self.label_name_bytes_max);
        let values = Limit::new("label_value_bytes_max", self.label_value_bytes_max);
        for (index, (name, value)) in labels.iter().enumerate() {
            if name.is_empty() {
                return Err(LabelError::EmptyName { index });
            }
            check_limit(name, count, index + 1)?;
            check_limit(name, names, name.len())?;
            check_limit(name, values, value.len())?;
        }
        if !labels.is_sorted_by(|one, other| one.0 < other.0) {
            labels.sort_by_key(|(name, _)| *name);
            if let Some(duplicate) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                let name = duplicate[0].0.into();
                return Err(LabelError::Duplicate { name });
            }
        }
        labels.retain(|(_, value)| !value.is_empty());
        if labels.iter().any(|(name, _)| *name == METRIC_NAME) {
            Ok(())
        } else {
            Err(LabelError::NoMetricName)
        }
    }
}

/// Reads label fields and checks what they hold. `labels` is emptied first; afterwards it is sorted
/// by name.
///
/// # Errors
/// [`LabelError`]; bytes are counted from the start of `raw`.
pub fn parse<'a>(
    raw: &'a [u8],
    limits: &LabelLimits,
    labels: &mut Vec<(&'a str, &'a str)>,
) -> Result<(), LabelError> {
    labels.clear();
    let mut fields = Message::new(raw, "TimeSeries");
    while let Some(field) = fields.read_field()? {
        if field.number == 1 {
            labels.push(parse_label(field.as_message("TimeSeries", MESSAGE)?)?);
        }
        // One more than allowed is enough to refuse them.
        if labels.len() as u64 > limits.labels_per_series_max {
            break;
        }
    }
    limits.check(labels)
}

/// The values of two labels among label fields; empty where there is no such label.
///
/// # Errors
/// [`WireError`]; bytes are counted from the start of `raw`.
pub fn find_values<'a>(names: [&str; 2], raw: &'a [u8]) -> Result<[&'a str; 2], WireError> {
    let mut values = [""; 2];
    let mut fields = Message::new(raw, "TimeSeries");
    while let Some(field) = fields.read_field()? {
        if field.number == 1 {
            let (name, value) = parse_label(field.as_message("TimeSeries", MESSAGE)?)?;
            if let Some(index) = names.iter().position(|wanted| *wanted == name) {
                values[index] = value;
            }
        }
    }
    Ok(values)
}

/// Name and value of a label.
pub(crate) fn parse_label(mut label: Message<'_>) -> Result<(&str, &str), WireError> {
    let (mut name, mut value) = ("", "");
    while let Some(field) = label.read_field()? {
        match field.number {
            1 => name = field.as_text(MESSAGE)?,
            2 => value = field.as_text(MESSAGE)?,
            _ => {}
        }
    }
    Ok((name, value))
}

pub(super) fn encoded_len(text: &[u8]) -> usize {
    let length = text.len();
    match length {
        0 => 0,
        _ => 1 + length.ilog2() as usize / 7 + 1 + length,
    }
}

/// Appends a label as remote write 1.0 has it in a series: name before value, lengths as short as
/// they can be, empty strings left out.
pub(crate) fn append_label_field(name: &str, value: &str, out: &mut Vec<u8>) {
    append_label_bytes(name.as_bytes(), value.as_bytes(), out);
}

pub(crate) fn append_label_bytes(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(LABEL_KEY);
    put_varint(out, (encoded_len(name) + encoded_len(value)) as u64);
    for (key, text) in [(NAME_KEY, name), (VALUE_KEY, value)] {
        if !text.is_empty() {
            out.push(key);
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text);
        }
    }
}

#[cfg(test)]
mod tests;
