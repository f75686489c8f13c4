//! From the text that a target showed to samples, scrape after scrape: labels, limits, the ends of
//! series, and the series that say how it went.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use egret_metrics_model::number::open_metrics_number;
use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME, STALE_NAN_BITS, TimeMs};
use egret_metrics_wire::MetricKind;
use egret_metrics_wire::exposition::{TextFormat, TextItem, TextLabels, TextReader};

use super::config::{ScrapeConfig, ScrapeLimits};
use super::target::ScrapeTarget;
use crate::core::metadata::{Description, MetadataLines};
use crate::core::rules::NewSample;

/// A sample whose time is so far ahead is left out, in milliseconds.
const FUTURE_MAX_MS: i64 = 10 * 60_000;

/// The series that say how a scrape went.
const REPORT_METRICS: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// Text of a scrape's response.
#[derive(Clone, Copy, Debug)]
pub struct ScrapePage<'a> {
    /// Text of the response.
    pub text: &'a str,
    /// Format of the text.
    pub format: TextFormat,
}

/// Result of taking in a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScrapeResult {
    /// To be appended: the target's samples, and markers that end series.
    pub samples: Vec<NewSample>,
    /// To be appended whatever the limit on series: how the scrape went.
    pub report: Vec<NewSample>,
    /// Samples that the target showed.
    pub scraped: u64,
    /// Why it failed, if it did; then none of the target's samples is there.
    pub error: Option<String>,
}

/// State of a target between its scrapes: its series, and which of them are still exposed.
#[derive(Debug)]
pub struct Intake {
    target: Labels,
    report: [Labels; REPORT_METRICS.len()],
    /// By the labels as the target writes them.
    series: HashMap<Box<str>, TargetSeries>,
    round: u64,
    has_reported: bool,
}

#[derive(Debug)]
struct TargetSeries {
    /// As they are kept; nothing when relabelling drops them.
    labels: Option<Labels>,
    seen_round: u64,
    /// The last round in which it was there without a time of its own, so that its absence says
    /// that it ended.
    tracked_round: u64,
    /// The one before, in case the last one fails in its middle.
    previous_tracked_round: u64,
}

impl TargetSeries {
    fn track(&mut self, round: u64) {
        if self.tracked_round != round {
            self.previous_tracked_round = std::mem::replace(&mut self.tracked_round, round);
        }
    }

    /// Whether it was tracked in the round before this one.
    fn was_tracked(&self, round: u64) -> bool {
        let last_tracked_round = if self.tracked_round == round {
            self.previous_tracked_round
        } else {
            self.tracked_round
        };
        last_tracked_round == round - 1
    }
}

#[derive(Default)]
struct ScrapeCounts {
    scraped: u64,
    kept: u64,
    added: u64,
}

/// Receives samples, counts and metadata while a page is read.
struct PageSink<'a> {
    counts: &'a mut ScrapeCounts,
    samples: &'a mut Vec<NewSample>,
    describe: &'a mut dyn FnMut(Description<'_>),
}

fn stale_marker(labels: &Labels, time_ms: TimeMs) -> NewSample {
    NewSample { labels: labels.clone(), time_ms, value: f64::from_bits(STALE_NAN_BITS) }
}

impl Intake {
    /// Before the first scrape.
    pub fn new(target: &ScrapeTarget) -> Self {
        let report = REPORT_METRICS.map(|name| {
            let mut labels = LabelsBuilder::from_labels(&target.labels);
            labels.set(METRIC_NAME, name);
            labels.build()
        });
        Self {
            target: target.labels.clone(),
            report,
            series: HashMap::new(),
            round: 1,
            has_reported: false,
        }
    }

    /// Takes what a target showed at a time, or why it showed nothing. `describe` is called with
    /// what it says of its metrics, until something is wrong with the page.
    pub fn take_page(
        &mut self,
        config: &ScrapeConfig,
        page: Result<ScrapePage<'_>, String>,
        scrape_time: TimeMs,
        duration: Duration,
        describe: &mut dyn FnMut(Description<'_>),
    ) -> ScrapeResult {
        self.round += 1;
        let mut counts = ScrapeCounts::default();
        let mut samples = Vec::new();
        let result = page.and_then(|page| {
            let mut sink = PageSink { counts: &mut counts, samples: &mut samples, describe };
            self.read_page(config, page, scrape_time, &mut sink)
        });
        if result.is_err() {
            samples.clear();
        }
        self.end_missing_series(result.is_ok(), scrape_time, &mut samples);
        let values = [
            if result.is_ok() { 1.0 } else { 0.0 },
            duration.as_secs_f64(),
            counts.scraped as f64,
            counts.kept as f64,
            counts.added as f64,
        ];
        let report = self.report.iter().zip(values);
        let report = report.map(|(labels, value)| NewSample {
            labels: labels.clone(),
            time_ms: scrape_time,
            value,
        });
        let report = report.collect();
        self.has_reported = true;
        ScrapeResult { samples, report, scraped: counts.scraped, error: result.err() }
    }

    /// The target is no more: the markers that end its series and its report.
    pub(crate) fn end_all(&mut self, scrape_time: TimeMs) -> Vec<NewSample> {
        self.round += 1;
        let mut samples = Vec::new();
        self.end_missing_series(false, scrape_time, &mut samples);
        if std::mem::take(&mut self.has_reported) {
            samples.extend(self.report.iter().map(|labels| stale_marker(labels, scrape_time)));
        }
        self.series.clear();
        samples
    }

    /// Ends the series that were there in the round before and are not in this one; when this one
    /// failed, all.
    fn end_missing_series(
        &mut self,
        is_read: bool,
        scrape_time: TimeMs,
        samples: &mut Vec<NewSample>,
    ) {
        let round = self.round;
        let was_present = |series: &&TargetSeries| {
            series.was_tracked(round) && (!is_read || series.seen_round != round)
        };
        let missing: Vec<&Labels> = self
            .series
            .values()
            .filter(was_present)
            .filter_map(|known| known.labels.as_ref())
            .collect();
        if !missing.is_empty() {
            // What the target writes in two ways may still be there in the other.
            let mut written_labels: HashSet<&Labels> =
                samples.iter().map(|sample| &sample.labels).collect();
            let markers: Vec<NewSample> = missing
                .into_iter()
                .filter(|labels| written_labels.insert(labels))
                .map(|labels| stale_marker(labels, scrape_time))
                .collect();
            samples.extend(markers);
        }
        // What a failed scrape did not reach may be there in the next.
        let oldest_round = if is_read { round } else { round - 1 };
        self.series.retain(|_, known| known.seen_round >= oldest_round);
        if !is_read {
            for known in self.series.values_mut() {
                (known.tracked_round, known.previous_tracked_round) = (0, 0);
            }
        }
    }

    fn read_page(
        &mut self,
        config: &ScrapeConfig,
        page: ScrapePage<'_>,
        scrape_time: TimeMs,
        sink: &mut PageSink<'_>,
    ) -> Result<(), String> {
        let round = self.round;
        let PageSink { counts, samples, describe } = sink;
        let mut metadata_lines = MetadataLines::default();
        let mut reader = TextReader::new(page.text, page.format);
        let mut key = String::new();
        while let Some(item) = reader.next() {
            let item = item.map_err(|error| error.to_string())?;
            let TextItem::Sample { labels, value, time_ms } = item else {
                metadata_lines.add_item(item, describe);
                continue;
            };
            counts.scraped += 1;
            write_key(labels, &mut key);
            if !self.series.contains_key(key.as_str()) {
                let kept_labels =
                    resolve_labels(labels, metadata_lines.kind(), &self.target, config)?;
                counts.added += u64::from(kept_labels.is_some());
                let series = TargetSeries {
                    labels: kept_labels,
                    seen_round: 0,
                    tracked_round: 0,
                    previous_tracked_round: 0,
                };
                self.series.insert(key.as_str().into(), series);
            }
            let known = self.series.get_mut(key.as_str());
            let known = known.expect("it is there or was just put there");
            known.seen_round = round;
            let Some(labels) = known.labels.clone() else {
                continue;
            };
            counts.kept += 1;
            let samples_max = config.limits.samples;
            if samples_max > 0 && counts.kept > samples_max {
                return Err(format!("sample limit exceeded (limit: {samples_max})"));
            }
            let own_time = time_ms.filter(|_| config.honor_timestamps);
            if own_time.is_some_and(|time| time > scrape_time + FUTURE_MAX_MS) {
                continue;
            }
            if own_time.is_none() {
                known.track(round);
            }
            samples.push(NewSample { labels, time_ms: own_time.unwrap_or(scrape_time), value });
        }
        metadata_lines.finish(describe);
        if page.format == TextFormat::OpenMetrics && !reader.has_ended() {
            return Err("data does not end with # EOF".to_owned());
        }
        Ok(())
    }
}

/// Writes the key of a series: its labels as the target exposes them.
fn write_key(labels: &TextLabels<'_>, key: &mut String) {
    key.clear();
    for (name, value) in labels {
        write!(key, "{}:{name}{}:{value}", name.len(), value.len())
            .expect("a string takes whatever is written");
    }
}

/// The labels under which a series is kept; nothing when it is dropped.
fn resolve_labels(
    exposed_labels: &TextLabels<'_>,
    kind: MetricKind,
    target: &Labels,
    config: &ScrapeConfig,
) -> Result<Option<Labels>, String> {
    let mut labels = LabelsBuilder::default();
    for (name, value) in exposed_labels {
        if !value.is_empty() && !labels.get(name).is_empty() {
            return Err(format!("label name {name:?} occurs twice"));
        }
        labels.set(name, &normalized(kind, name, value));
    }
    let mut conflicts: Vec<(&str, String)> = Vec::new();
    for (name, value) in target.iter() {
        let own_value = labels.get(name).to_owned();
        if own_value.is_empty() {
            labels.set(name, value);
        } else if !config.honor_labels {
            conflicts.push((name, own_value));
            labels.set(name, value);
        }
    }
    // Shorter names first, so that `exported_job` is not taken when `job` needs it.
    conflicts.sort_by_key(|(name, _)| name.len());
    for (name, value) in conflicts {
        let mut exported = format!("exported_{name}");
        while !labels.get(&exported).is_empty() {
            exported.insert_str(0, "exported_");
        }
        labels.set(&exported, &value);
    }
    if !config.metric_relabeling.apply(&mut labels) {
        return Ok(None);
    }
    let labels = labels.build();
    if labels.is_empty() {
        return Ok(None);
    }
    if labels.metric().is_empty() {
        return Err("missing metric name (__name__ label)".to_owned());
    }
    check_limits(&labels, config.limits)?;
    Ok(Some(labels))
}

/// The value of a label. As in Prometheus 3, bounds of buckets and quantiles are written in one
/// way, whatever the format of the page: `1.0`, not `1`.
fn normalized<'a>(kind: MetricKind, name: &str, value: &'a str) -> Cow<'a, str> {
    let is_number = match kind {
        MetricKind::Histogram => name == "le",
        MetricKind::Summary => name == "quantile",
        _ => false,
    };
    let number = is_number.then(|| value.parse::<f64>().ok()).flatten();
    number.map_or(Cow::Borrowed(value), |number| Cow::Owned(open_metrics_number(number)))
}

fn check_limits(labels: &Labels, limits: ScrapeLimits) -> Result<(), String> {
    let metric: String = labels.metric().chars().take(50).collect();
    let is_over = |size: usize, limit: u64| limit > 0 && size as u64 > limit;
    let count = labels.iter().count();
    if is_over(count, limits.labels) {
        let limit = limits.labels;
        return Err(format!(
            "label_limit exceeded (metric: {metric}, number of labels: {count}, limit: {limit})"
        ));
    }
    for (name, value) in labels.iter() {
        for (limit_name, size, limit) in [
            ("label_name_length_limit", name.len(), limits.label_name_bytes),
            ("label_value_length_limit", value.len(), limits.label_value_bytes),
        ] {
            if is_over(size, limit) {
                let name: String = name.chars().take(50).collect();
                return Err(format!(
                    "{limit_name} exceeded (metric: {metric}, label name: {name}, length: {size}, limit: {limit})"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
