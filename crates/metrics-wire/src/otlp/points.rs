//! Translates OTLP points to samples.

use egret_metrics_model::{STALE_NAN_BITS, TimeMs};

use super::labels::{Labels, ResourceLabels, Times, with_metric_name};
use super::message::{
    Buckets, CUMULATIVE, ExponentialPoint, HistogramPoint, KeyValue, Metric, NO_RECORDED_VALUE,
    NumberPoint, SummaryPoint,
};
use super::names::{NamedKind, metric_name, unit_name};
use super::{OtlpBatch, OtlpMetadata, OtlpValue};
use crate::histogram::{WireBuckets, WireCount, WireHistogram, WireSpan};
use crate::{MetricKind, WireSample};

/// The width of the bucket around zero where the sender does not say.
const ZERO_THRESHOLD: f64 = 1e-128;
/// So many empty buckets are written rather than left out.
const GAP_MAX: i64 = 2;
/// Buckets that a histogram may have; those of a hostile one may be far apart, never many.
const SCHEMA_MIN: i32 = -4;
const SCHEMA_MAX: i32 = 8;

/// Where the samples of a metric go.
struct Points<'a, 't> {
    metric: &'a str,
    resource: &'a ResourceLabels<'a>,
    times: &'a mut Times,
    out: &'t mut OtlpBatch,
}

fn nanos_to_ms(nanoseconds: u64) -> TimeMs {
    (nanoseconds / 1_000_000) as i64
}

fn count_points(metric: &Metric) -> usize {
    let gauge = metric.gauge.as_ref().map_or(0, |data| data.data_points.len());
    let sum = metric.sum.as_ref().map_or(0, |data| data.data_points.len());
    let histogram = metric.histogram.as_ref();
    let exponential = metric.exponential_histogram.as_ref();
    let summary = metric.summary.as_ref();
    gauge
        + sum
        + histogram.map_or(0, |data| data.data_points.len())
        + exponential.map_or(0, |data| data.data_points.len())
        + summary.map_or(0, |data| data.data_points.len())
}

fn metric_kinds(metric: &Metric) -> (NamedKind, MetricKind) {
    match &metric.sum {
        _ if metric.gauge.is_some() => (NamedKind::Gauge, MetricKind::Gauge),
        Some(sum) if sum.is_monotonic => (NamedKind::Counter, MetricKind::Counter),
        Some(_) => (NamedKind::Other, MetricKind::Gauge),
        None if metric.summary.is_some() => (NamedKind::Other, MetricKind::Summary),
        None => (NamedKind::Other, MetricKind::Histogram),
    }
}

pub(super) fn translate(
    metric: &Metric,
    resource: &ResourceLabels<'_>,
    times: &mut Times,
    out: &mut OtlpBatch,
) {
    let (named_kind, kind) = metric_kinds(metric);
    let count = count_points(metric);
    let Some(name) = metric_name(&metric.name, &metric.unit, named_kind) else {
        let reason = format!("metric {:?} has no usable name", metric.name);
        return out.reject(count, reason);
    };
    let temporality = metric.sum.as_ref().map(|sum| sum.aggregation_temporality);
    let histogram = metric.histogram.as_ref();
    let exponential = metric.exponential_histogram.as_ref();
    let temporality = temporality
        .or(histogram.map(|data| data.aggregation_temporality))
        .or(exponential.map(|data| data.aggregation_temporality));
    if temporality.is_some_and(|temporality| temporality != CUMULATIVE) {
        let reason = format!(
            "metric {:?} is not cumulative: set the exporter's temporality to cumulative",
            metric.name
        );
        return out.reject(count, reason);
    }
    if count == 0 {
        return;
    }
    out.metadata.push(OtlpMetadata {
        metric: name.clone(),
        kind,
        help: metric.description.clone(),
        unit: unit_name(&metric.unit),
    });
    let mut points = Points { metric: &name, resource, times, out };
    let gauge = metric.gauge.iter().flat_map(|data| &data.data_points);
    let sum = metric.sum.iter().flat_map(|data| &data.data_points);
    gauge.chain(sum).for_each(|point| points.push_number(point));
    let data = metric.histogram.iter().flat_map(|data| &data.data_points);
    data.for_each(|point| points.push_histogram(point));
    let data = metric.exponential_histogram.iter();
    data.flat_map(|data| &data.data_points)
        .for_each(|point| points.push_exponential_histogram(point));
    let data = metric.summary.iter().flat_map(|data| &data.data_points);
    data.for_each(|point| points.push_summary(point));
}

/// The value, unless the point says that the series has ended.
fn value_or_stale(value: f64, flags: u32) -> f64 {
    match flags & NO_RECORDED_VALUE {
        0 => value,
        _ => f64::from_bits(STALE_NAN_BITS),
    }
}

impl Points<'_, '_> {
    fn point_labels(&mut self, attributes: &[KeyValue], nanoseconds: u64) -> Option<Labels> {
        if !self.out.has_room() {
            return None;
        }
        match self.resource.point_labels(attributes) {
            Ok(labels) => {
                self.times.add(nanos_to_ms(nanoseconds));
                Some(labels)
            }
            Err(reason) => {
                self.out.reject(1, reason);
                None
            }
        }
    }

    fn push_sample(
        &mut self,
        labels: &Labels,
        suffix: &str,
        extra: Option<(&str, String)>,
        sample: WireSample,
    ) {
        if self.out.has_room() {
            let metric = format!("{}{suffix}", self.metric);
            let labels = with_metric_name(labels, &metric, extra);
            self.out.push(labels, OtlpValue::Sample(sample));
        }
    }

    fn push_number(&mut self, point: &NumberPoint) {
        let value = point.as_double.or(point.as_int.map(|value| value as f64));
        if value.is_none() && point.flags & NO_RECORDED_VALUE == 0 {
            let reason = format!("a point of {:?} has no value", self.metric);
            return self.out.reject(1, reason);
        }
        let Some(labels) = self.point_labels(&point.attributes, point.time_unix_nano) else {
            return;
        };
        let sample = WireSample {
            time_ms: nanos_to_ms(point.time_unix_nano),
            value: value_or_stale(value.unwrap_or_default(), point.flags),
        };
        self.push_sample(&labels, "", None, sample);
    }

    fn push_histogram(&mut self, point: &HistogramPoint) {
        let Some(labels) = self.point_labels(&point.attributes, point.time_unix_nano) else {
            return;
        };
        let sample = |value| WireSample {
            time_ms: nanos_to_ms(point.time_unix_nano),
            value: value_or_stale(value, point.flags),
        };
        if let Some(sum) = point.sum {
            self.push_sample(&labels, "_sum", None, sample(sum));
        }
        self.push_sample(&labels, "_count", None, sample(point.count as f64));
        let mut total = 0u64;
        for (bound, count) in point.explicit_bounds.iter().zip(&point.bucket_counts) {
            total = total.saturating_add(*count);
            if bound.is_finite() {
                let extra = Some(("le", bound.to_string()));
                self.push_sample(&labels, "_bucket", extra, sample(total as f64));
            }
        }
        let extra = Some(("le", "+Inf".into()));
        self.push_sample(&labels, "_bucket", extra, sample(point.count as f64));
    }

    fn push_summary(&mut self, point: &SummaryPoint) {
        let Some(labels) = self.point_labels(&point.attributes, point.time_unix_nano) else {
            return;
        };
        let sample = |value| WireSample {
            time_ms: nanos_to_ms(point.time_unix_nano),
            value: value_or_stale(value, point.flags),
        };
        self.push_sample(&labels, "_sum", None, sample(point.sum));
        self.push_sample(&labels, "_count", None, sample(point.count as f64));
        for quantile in &point.quantile_values {
            let extra = Some(("quantile", quantile.quantile.to_string()));
            self.push_sample(&labels, "", extra, sample(quantile.value));
        }
    }

    fn push_exponential_histogram(&mut self, point: &ExponentialPoint) {
        if point.scale < SCHEMA_MIN {
            let (name, scale) = (self.metric, point.scale);
            let reason =
                format!("a histogram of {name:?} has scale {scale}, below the minimum of -4");
            return self.out.reject(1, reason);
        }
        let schema = point.scale.min(SCHEMA_MAX);
        let merge_shift = (point.scale - schema).min(31) as u32;
        let convert_buckets = |buckets: &Option<Buckets>| {
            let buckets = buckets.as_ref();
            buckets.map_or(Some(WireBuckets::default()), |buckets| {
                to_wire_buckets(buckets, merge_shift)
            })
        };
        let (Some(positive), Some(negative)) =
            (convert_buckets(&point.positive), convert_buckets(&point.negative))
        else {
            let reason = format!(
                "a histogram of {:?} has counts or indices that are too large",
                self.metric
            );
            return self.out.reject(1, reason);
        };
        let Some(labels) = self.point_labels(&point.attributes, point.time_unix_nano) else {
            return;
        };
        let mut histogram = WireHistogram {
            time_ms: nanos_to_ms(point.time_unix_nano),
            sum: value_or_stale(point.sum.unwrap_or_default(), point.flags),
            schema,
            zero_threshold: ZERO_THRESHOLD,
            ..WireHistogram::default()
        };
        if point.zero_threshold > 0.0 {
            histogram.zero_threshold = point.zero_threshold;
        }
        // Of one that says that the series has ended, only the sum counts.
        if point.flags & NO_RECORDED_VALUE == 0 {
            histogram.count = WireCount::Integer(point.count);
            histogram.zero_count = WireCount::Integer(point.zero_count);
            histogram.positive = positive;
            histogram.negative = negative;
        }
        if let Some(problem) = histogram.find_problem() {
            let reason = format!("a histogram of {:?}: {problem}", self.metric);
            return self.out.reject(1, reason);
        }
        let value = OtlpValue::Histogram(Box::new(histogram));
        self.out.push(with_metric_name(&labels, self.metric, None), value);
    }
}

/// Dense buckets as spans. `merged` times, two neighbours become one. OpenTelemetry's bucket 0
/// begins at 1, Prometheus's ends there. `None` when a count or an index does not fit.
fn to_wire_buckets(buckets: &Buckets, merge_shift: u32) -> Option<WireBuckets> {
    let mut out = WireBuckets::default();
    let mut next_index = None;
    let mut last_count = 0i64;
    let index_of =
        |position: usize| ((i64::from(buckets.offset) + position as i64) >> merge_shift) + 1;
    let counts = &buckets.bucket_counts;
    let mut place = 0;
    while place < counts.len() {
        let index = index_of(place);
        let mut count = 0i64;
        while place < counts.len() && index_of(place) == index {
            count = count.checked_add(i64::try_from(counts[place]).ok()?)?;
            place += 1;
        }
        if count == 0 {
            continue;
        }
        let gap = index - next_index.unwrap_or(0);
        let mut push = |out: &mut WireBuckets, count: i64| -> Option<()> {
            out.spans.last_mut()?.length += 1;
            out.deltas.push(count - last_count);
            last_count = count;
            Some(())
        };
        if next_index.is_none() || gap > GAP_MAX {
            let offset = i32::try_from(gap).ok()?;
            out.spans.push(WireSpan { offset, length: 0 });
        } else {
            for _ in 0..gap {
                push(&mut out, 0)?;
            }
        }
        push(&mut out, count)?;
        next_index = Some(index + 1);
    }
    Some(out)
}
