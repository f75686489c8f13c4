//! A sample a row, as CSV: columns `time`, `metric` and `value`, and one for each label that there
//! is. A label whose cell is empty is not there. Times are written as RFC 3339 with milliseconds,
//! and read as that or as milliseconds since 1970.

use egret_base::Timestamp;
use egret_metrics_model::{Labels, METRIC_NAME, TimeMs, normalize_nan};

use super::exposition::append_number;

/// Columns of a table: labels, time and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumns {
    time: usize,
    value: usize,
    /// Index and name of each label's column.
    labels: Vec<(usize, String)>,
}

/// A sample, as a row has it.
#[derive(Debug, PartialEq)]
pub struct TableRow<'a> {
    /// Name and value of each label.
    pub labels: Vec<(&'a str, &'a str)>,
    /// Time in milliseconds; `None` if the row has none.
    pub time_ms: Option<TimeMs>,
    /// Value of the sample.
    pub value: f64,
}

impl TableColumns {
    /// Reads the head of a table.
    ///
    /// # Errors
    /// Which column is missing.
    pub fn parse_header<'a>(head: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let (mut time, mut value, mut labels) = (None, None, Vec::new());
        for (index, name) in head.enumerate() {
            match name.trim() {
                "time" | "timestamp" => time = Some(index),
                "value" => value = Some(index),
                "metric" => labels.push((index, METRIC_NAME.to_owned())),
                name => labels.push((index, name.to_owned())),
            }
        }
        let missing_column = |name| format!("the header has no column `{name}`");
        if labels.iter().all(|(_, name)| name != METRIC_NAME) {
            return Err(missing_column("metric"));
        }
        Ok(Self {
            time: time.ok_or_else(|| missing_column("time"))?,
            value: value.ok_or_else(|| missing_column("value"))?,
            labels,
        })
    }

    /// Reads a row.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_row<'a>(
        &'a self,
        cell: impl Fn(usize) -> Option<&'a str>,
    ) -> Result<TableRow<'a>, String> {
        let value = cell(self.value).ok_or("it has no value")?.trim();
        let time = cell(self.time).ok_or("it has no time")?.trim();
        let labels = self.labels.iter().filter_map(|(index, name)| match cell(*index) {
            None | Some("") => None,
            Some(value) => Some((name.as_str(), value)),
        });
        Ok(TableRow {
            labels: labels.collect(),
            time_ms: parse_time(time)?,
            value: value
                .parse()
                .map(normalize_nan)
                .map_err(|_| format!("the value {value:?} is not a number"))?,
        })
    }
}

fn parse_time(text: &str) -> Result<Option<TimeMs>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(time_ms) = text.parse() {
        return Ok(Some(time_ms));
    }
    let time: Timestamp = text.parse()?;
    Ok(Some(time.as_micros().div_euclid(1_000)))
}

/// Appends the head of a table with these labels, `__name__` not among them.
pub fn append_header(labels: &[String], out: &mut String) {
    out.push_str("time,metric,value");
    for name in labels {
        out.push(',');
        append_cell(name, out);
    }
    out.push('\n');
}

/// Appends a row of such a table.
pub fn append_row(
    label_names: &[String],
    labels: &Labels,
    time_ms: TimeMs,
    value: f64,
    out: &mut String,
) {
    let time = Timestamp::from_micros(time_ms.saturating_mul(1_000)).to_string();
    // Of microseconds, three digits are always zero.
    out.push_str(time.strip_suffix("000Z").unwrap_or(&time));
    out.push_str("Z,");
    append_cell(labels.metric(), out);
    out.push(',');
    append_number(value, out);
    for name in label_names {
        out.push(',');
        append_cell(labels.get(name), out);
    }
    out.push('\n');
}

fn append_cell(text: &str, out: &mut String) {
    if !text.contains([',', '"', '\n', '\r']) {
        out.push_str(text)
    } else {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    }
}

#[cfg(test)]
mod tests;
