//! A job as it is in force, in the form of a file: what was left out is there, secrets are not.

use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::ScrapeConfig;
use crate::core::yaml::DurationMs;

impl Serialize for ScrapeConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("job_name", &self.job_name)?;
        map.serialize_entry("scrape_interval", &DurationMs(self.interval_ms))?;
        map.serialize_entry("scrape_timeout", &DurationMs(self.timeout_ms))?;
        map.serialize_entry("metrics_path", &self.metrics_path)?;
        map.serialize_entry("scheme", &self.scheme)?;
        let written = serde_json::to_value(&self.text).map_err(S::Error::custom)?;
        let Some(Value::Object(written)) = remove_defaults(written) else {
            return map.end();
        };
        let already_written =
            ["job_name", "scrape_interval", "scrape_timeout", "metrics_path", "scheme"];
        for (name, value) in &written {
            if !already_written.contains(&name.as_str()) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// Removes nulls and zeros from a value: properties that were left out, and limits that are off.
fn remove_defaults(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Number(number) => (number.as_u64() != Some(0)).then_some(Value::Number(number)),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let kept_fields =
                fields.filter_map(|(name, value)| Some((name, remove_defaults(value)?)));
            Some(Value::Object(kept_fields.collect()))
        }
        Value::Array(values) => Some(values.into_iter().filter_map(remove_defaults).collect()),
        other => Some(other),
    }
}
