//! Attributes as labels: of the points, and of the resource that they are from.

use std::collections::BTreeMap;

use base64::Engine as _;
use egret_metrics_model::{METRIC_NAME, TimeMs};

use super::message::{AnyValue, KeyValue};
use super::names::label_name;
use super::{OtlpBatch, OtlpOptions, OtlpValue};
use crate::WireSample;

const IDENTITY_ATTRIBUTES: [&str; 3] = ["service.namespace", "service.name", "service.instance.id"];

/// Half of the five minutes for which PromQL looks back: so often there is a sample of
/// `target_info`…
const TARGET_INFO_STEP_MS: TimeMs = 150_000;
/// …but not more often than this in a request, whatever times it has.
const TARGET_INFO_SAMPLES_MAX: i64 = 500;

/// The first and the last time of a resource's points.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times(Option<(TimeMs, TimeMs)>);

impl Times {
    pub(crate) fn add(&mut self, time: TimeMs) {
        let (first, last) = self.0.unwrap_or((time, time));
        self.0 = Some((first.min(time), last.max(time)));
    }
}

pub(super) type Labels = BTreeMap<String, String>;

/// What a resource's points have in common.
pub(super) struct ResourceLabels<'a> {
    attributes: &'a [KeyValue],
    promoted: Vec<(String, String)>,
    identity: Vec<(&'static str, String)>,
}

/// As text, the way OpenTelemetry has it for systems that know only text: lists and maps are JSON.
fn value_text(value: &AnyValue) -> String {
    match value_json(value) {
        serde_json::Value::String(text) => text,
        serde_json::Value::Null => String::new(),
        serde_json::Value::Number(_) if value.double_value.is_some() => {
            value.double_value.unwrap_or_default().to_string()
        }
        other => other.to_string(),
    }
}

fn value_json(value: &AnyValue) -> serde_json::Value {
    if let Some(text) = &value.string_value {
        return text.as_str().into();
    }
    if let Some(flag) = value.bool_value {
        return flag.into();
    }
    if let Some(number) = value.int_value {
        return number.into();
    }
    if let Some(number) = value.double_value {
        return if number.is_finite() { number.into() } else { number.to_string().into() };
    }
    if let Some(array) = &value.array_value {
        return array.values.iter().map(value_json).collect();
    }
    if let Some(list) = &value.kvlist_value {
        let sorted: BTreeMap<&str, serde_json::Value> =
            list.values.iter().map(json_entry).collect();
        let entries = sorted.into_iter().map(|(key, value)| (key.to_owned(), value));
        return serde_json::Value::Object(entries.collect());
    }
    match &value.bytes_value {
        Some(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        None => serde_json::Value::Null,
    }
}

fn json_entry(pair: &KeyValue) -> (&str, serde_json::Value) {
    let value = pair.value.as_ref().map_or(serde_json::Value::Null, value_json);
    (&pair.key, value)
}

fn attribute_text(pair: &KeyValue) -> String {
    pair.value.as_ref().map_or_else(String::new, value_text)
}

/// Attributes as labels. Where several become one name, their values are joined in the order of
/// their keys.
fn append_attributes(attributes: &[KeyValue], labels: &mut Labels) -> Result<(), String> {
    let mut sorted: Vec<&KeyValue> = attributes.iter().collect();
    sorted.sort_by_key(|pair| &pair.key);
    for pair in sorted {
        let Some(name) = label_name(&pair.key) else {
            return Err(format!("attribute {:?} cannot be a label", pair.key));
        };
        let value = attribute_text(pair);
        labels
            .entry(name)
            .and_modify(|present| {
                present.push(';');
                present.push_str(&value);
            })
            .or_insert(value);
    }
    Ok(())
}

impl<'a> ResourceLabels<'a> {
    pub(crate) fn new(attributes: &'a [KeyValue], options: &OtlpOptions) -> Self {
        let find_text =
            |key: &str| attributes.iter().find(|pair| pair.key == key).map(attribute_text);
        let mut identity = Vec::new();
        if let Some(name) = find_text("service.name") {
            let job = match find_text("service.namespace") {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            };
            identity.push(("job", job));
        }
        if let Some(instance) = find_text("service.instance.id") {
            identity.push(("instance", instance));
        }
        let promoted = options
            .promoted_resource_attributes
            .iter()
            .filter_map(|key| Some((label_name(key)?, find_text(key)?)));
        Self { attributes, promoted: promoted.collect(), identity }
    }

    /// The labels of a point, without a metric's name.
    ///
    /// # Errors
    /// Why an attribute cannot be a label.
    pub(crate) fn point_labels(&self, attributes: &[KeyValue]) -> Result<Labels, String> {
        let mut labels = Labels::new();
        append_attributes(attributes, &mut labels)?;
        for (name, value) in &self.promoted {
            labels.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &self.identity {
            labels.insert((*name).into(), value.clone());
        }
        Ok(labels)
    }

    /// What else is known of the resource, from the first to the last time of its points.
    pub(crate) fn append_target_info(&self, times: &Times, out: &mut OtlpBatch) {
        let is_other = |pair: &&KeyValue| !IDENTITY_ATTRIBUTES.contains(&pair.key.as_str());
        let others: Vec<KeyValue> = self.attributes.iter().filter(is_other).cloned().collect();
        let Some((first, last)) = times.0 else {
            return;
        };
        // Without more than its identity there is nothing to say, without identity nothing to say
        // it of.
        if others.is_empty() || self.identity.is_empty() {
            return;
        }
        let mut labels = Labels::new();
        if let Err(reason) = append_attributes(&others, &mut labels) {
            return out.reject(0, reason);
        }
        for (name, value) in &self.identity {
            labels.insert((*name).into(), value.clone());
        }
        let labels = with_metric_name(&labels, "target_info", None);
        let span = last.saturating_sub(first);
        let step = TARGET_INFO_STEP_MS.max(span / TARGET_INFO_SAMPLES_MAX);
        let mut time = first;
        while time < last && out.has_room() {
            push_target_info(out, labels.clone(), time);
            time = time.saturating_add(step);
        }
        push_target_info(out, labels, last);
    }
}

fn push_target_info(out: &mut OtlpBatch, labels: Vec<(String, String)>, time_ms: TimeMs) {
    let value = OtlpValue::Sample(WireSample { time_ms, value: 1.0 });
    out.push(labels, value);
}

/// The labels of a series: with a metric's name, and one of those by which a metric's own series
/// differ.
pub(super) fn with_metric_name(
    labels: &Labels,
    metric: &str,
    extra: Option<(&str, String)>,
) -> Vec<(String, String)> {
    let mut labels = labels.clone();
    labels.insert(METRIC_NAME.into(), metric.into());
    if let Some((name, value)) = extra {
        labels.insert(name.into(), value);
    }
    labels.retain(|_, value| !value.is_empty());
    labels.into_iter().collect()
}
