//! Cardinality and cost: the metrics, labels and values with the most series, when series were
//! created, and what metrics take in memory and on disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use egret_blocks::block::{Block, BlockError};
use egret_blocks::core::page::labels_hash;
use egret_blocks::core::window::WINDOWS_MS;
use egret_metrics_model::{Labels, METRIC_NAME, TimeMs, TimeSpan};

use super::Series;
use super::budget::Budget;
use crate::core::head::HeadFigures;
use crate::engine::EngineInner;
use crate::error::SeriesError;

/// A name and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameCount {
    /// A metric, a label's name, or `name=value`.
    pub name: String,
    /// Number of series, values or bytes, depending on the list.
    pub count: u64,
}

/// The largest of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// Number of distinct `name=value` pairs.
    pub pairs: u64,
    /// Different names of labels.
    pub names: u64,
    /// Series by metric, the most first.
    pub series_by_metric: Vec<NameCount>,
    /// Different values by label.
    pub values_by_name: Vec<NameCount>,
    /// Bytes of values by label, of all series together.
    pub bytes_by_name: Vec<NameCount>,
    /// Number of series by `name=value`.
    pub series_by_pair: Vec<NameCount>,
}

/// The heads: what is in memory and in no block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadStatistics {
    /// Number of series in the head.
    pub series: u64,
    /// Number of chunks of samples.
    pub chunks: u64,
    /// The times of the first and the last sample, if there are any.
    pub span: Option<TimeSpan>,
    /// The largest of each kind.
    pub largest: Largest,
}

/// What takes how much in some span of time, in the heads and in blocks. What was deleted counts
/// until its space is given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardinalityStats {
    /// Number of series in the span.
    pub series: u64,
    /// Of these, those that were not there in the two hours before the span.
    pub new_series: u64,
    /// The largest of each kind.
    pub largest: Largest,
    /// What metrics cost, those with the most bytes first.
    pub costs: Vec<Cost>,
    /// How long the periods of `new_by_period` are: an hour, or a day.
    pub period_ms: TimeMs,
    /// New series by the beginning of the period in which they came, where there are any.
    pub new_by_period: Vec<(TimeMs, u64)>,
}

/// Series, samples and bytes of one metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Name of the metric.
    pub metric: String,
    /// Number of series of the metric.
    pub series: u64,
    /// Of these, those that are new.
    pub new_series: u64,
    /// Samples in chunks that reach into the span, in memory and on disk.
    pub samples: u64,
    /// Bytes of values in blocks. Times are shared by many series, and not counted.
    pub disk_bytes: u64,
    /// Bytes of samples in memory.
    pub memory_bytes: u64,
}

/// How many series have each value, by label.
type Values = BTreeMap<String, BTreeMap<String, u64>>;

const HOUR_MS: TimeMs = 3_600_000;
const DAY_MS: TimeMs = 24 * HOUR_MS;

/// Spans up to here are divided into hours.
const HOURLY_SPAN_MAX_MS: TimeMs = 7 * DAY_MS;

/// Series that are looked at before it is asked how much memory that takes.
const SERIES_PER_CHECK: u32 = 4_096;

/// What a series that was seen takes, and a value that was counted beside its bytes: about.
const COUNTED_SERIES_BYTES: u64 = 64;
const VALUE_BYTES: u64 = 96;

impl Series {
    /// What takes how much in a span of time, by the `limit` largest of each kind. It counts as a
    /// query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] when that takes more time or memory than a query may,
    /// [`SeriesError::Block`], and [`SeriesError::Stopping`].
    pub async fn cardinality(
        &self,
        span: TimeSpan,
        limit: usize,
    ) -> Result<CardinalityStats, SeriesError> {
        self.run_as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.cardinality(span, limit, budget)
        })
        .await
    }

    /// What takes how much of the heads, by the `limit` largest of each kind. It counts as a query.
    ///
    /// # Errors
    /// [`SeriesError::Query`] when that takes more time or memory than a query may, and
    /// [`SeriesError::Stopping`].
    pub async fn head_statistics(&self, limit: usize) -> Result<HeadStatistics, SeriesError> {
        self.run_as_query(Some(self.query_timeout()), move |inner, budget| {
            inner.head_statistics(limit, budget)
        })
        .await
    }
}

impl EngineInner {
    fn cardinality(
        &self,
        span: TimeSpan,
        limit: usize,
        budget: &Budget,
    ) -> Result<CardinalityStats, SeriesError> {
        let mut explorer = Explorer::new(span);
        let snapshot = self.catalog()?.snapshot();
        // What was there before is not new.
        let lookback_start = span.start.saturating_sub(WINDOWS_MS[0]);
        for block in snapshot.blocks_overlapping(lookback_start, span.end) {
            for first in (0..block.series()).step_by(SERIES_PER_CHECK as usize) {
                let end = first.saturating_add(SERIES_PER_CHECK).min(block.series());
                let result = explorer.add_block(block, first..end);
                self.check_read(result)?;
                budget.check(explorer.bytes)?;
            }
        }
        for shard in self.shards()? {
            for (index, series) in shard.index.view().iter().enumerate() {
                if index.is_multiple_of(SERIES_PER_CHECK as usize) {
                    budget.check(explorer.bytes)?;
                }
                explorer.add_head(&series.labels, &series.figures(span));
            }
        }
        budget.check(explorer.bytes)?;
        Ok(explorer.finish(limit))
    }

    fn head_statistics(
        &self,
        limit: usize,
        budget: &Budget,
    ) -> Result<HeadStatistics, SeriesError> {
        let mut statistics = HeadStatistics::default();
        let (mut values, mut bytes) = (Values::new(), 0);
        for shard in self.shards()? {
            let view = shard.index.view();
            statistics.series += view.len() as u64;
            for (index, series) in view.iter().enumerate() {
                if index.is_multiple_of(SERIES_PER_CHECK as usize) {
                    budget.check(bytes)?;
                }
                let figures = series.figures(TimeSpan::ALL);
                statistics.chunks += figures.chunks;
                statistics.span = match (statistics.span, figures.span) {
                    (Some(one), Some(other)) => Some(one.union(other)),
                    (one, other) => one.or(other),
                };
            }
            let mut names: BTreeSet<String> = BTreeSet::new();
            view.visit_names(|name| {
                if !names.contains(name) {
                    names.insert(name.to_owned());
                }
            });
            for name in names {
                let counts = values.entry(name.clone()).or_default();
                view.visit_values(&name, |value, count| {
                    if add_count(counts, value, count as u64) {
                        bytes += VALUE_BYTES + value.len() as u64;
                    }
                });
                budget.check(bytes)?;
            }
        }
        statistics.largest = find_largest(&values, limit);
        Ok(statistics)
    }
}

/// Counts one more value, and returns whether it is a new one.
fn add_count(counts: &mut BTreeMap<String, u64>, value: &str, count: u64) -> bool {
    match counts.get_mut(value) {
        Some(total) => {
            *total += count;
            false
        }
        None => {
            counts.insert(value.to_owned(), count);
            true
        }
    }
}

fn find_largest(values: &Values, limit: usize) -> Largest {
    let name_count = |name: &str, count: u64| NameCount { name: name.to_owned(), count };
    let largest_by_name = |count: fn(&BTreeMap<String, u64>) -> u64| {
        let labels = values.iter();
        take_largest(labels.map(|(name, values)| name_count(name, count(values))).collect(), limit)
    };
    let pairs = values.iter().flat_map(|(name, values)| {
        let pair_count = move |(value, count): (&String, &u64)| NameCount {
            name: format!("{name}={value}"),
            count: *count,
        };
        values.iter().map(pair_count)
    });
    let metrics =
        values.get(METRIC_NAME).into_iter().flatten().map(|(name, count)| name_count(name, *count));
    Largest {
        pairs: values.values().map(|values| values.len() as u64).sum(),
        names: values.len() as u64,
        series_by_metric: take_largest(metrics.collect(), limit),
        values_by_name: largest_by_name(|values| values.len() as u64),
        bytes_by_name: largest_by_name(|values| {
            let bytes = |(value, count): (&String, &u64)| value.len() as u64 * count;
            values.iter().map(bytes).sum()
        }),
        series_by_pair: take_largest(pairs.collect(), limit),
    }
}

/// The largest, those of like size by name.
fn take_largest(mut counts: Vec<NameCount>, limit: usize) -> Vec<NameCount> {
    counts.sort_by(|left, right| {
        let by_count = right.count.cmp(&left.count);
        by_count.then_with(|| left.name.cmp(&right.name))
    });
    counts.truncate(limit);
    counts
}

/// A series that was met.
struct CountedSeries {
    first_ms: TimeMs,
    /// Index of its metric among the costs.
    metric: usize,
    /// Whether it has samples in the span.
    is_in_span: bool,
}

/// Goes through all series, of which each may be in several places.
struct Explorer {
    span: TimeSpan,
    /// By the hash of their labels: two that have one count as one.
    counted_series: HashMap<u64, CountedSeries>,
    values: Values,
    metric_indexes: HashMap<Arc<str>, usize>,
    costs: Vec<Cost>,
    bytes: u64,
}

/// Samples and bytes of a series in one head or block.
struct Share {
    first_ms: TimeMs,
    samples: u64,
    disk_bytes: u64,
    memory_bytes: u64,
}

impl Explorer {
    fn new(span: TimeSpan) -> Self {
        Self {
            span,
            counted_series: HashMap::new(),
            values: Values::new(),
            metric_indexes: HashMap::new(),
            costs: Vec::new(),
            bytes: 0,
        }
    }

    fn add_block(&mut self, block: &Block, series: Range<u32>) -> Result<(), BlockError> {
        block.for_each_name(series, |_, name| {
            let figures = name.figures(self.span);
            let share = Share {
                first_ms: figures.first_ms,
                samples: figures.samples,
                disk_bytes: figures.bytes,
                memory_bytes: 0,
            };
            let metric = name.label(METRIC_NAME);
            self.add_share(name.hash(), metric, &share, || name.labels());
        })
    }

    fn add_head(&mut self, labels: &Labels, figures: &HeadFigures) {
        let Some(span) = figures.span else {
            return;
        };
        let share = Share {
            first_ms: span.start,
            samples: figures.samples,
            disk_bytes: 0,
            memory_bytes: figures.bytes,
        };
        self.add_share(labels_hash(labels), labels.metric(), &share, || labels.clone());
    }

    fn add_share(&mut self, hash: u64, metric: &str, share: &Share, labels: impl Fn() -> Labels) {
        let previous = self.counted_series.get(&hash).map(|seen| (seen.metric, seen.is_in_span));
        let metric = previous.map_or_else(|| self.metric_index(metric), |(metric, _)| metric);
        let is_in_span = share.samples > 0;
        if is_in_span && !previous.is_some_and(|(_, counts)| counts) {
            self.costs[metric].series += 1;
            self.count_values(&labels());
        }
        let cost = &mut self.costs[metric];
        cost.samples += share.samples;
        cost.disk_bytes += share.disk_bytes;
        cost.memory_bytes += share.memory_bytes;
        let counted = self.counted_series.entry(hash).or_insert_with(|| {
            self.bytes += COUNTED_SERIES_BYTES;
            CountedSeries { first_ms: share.first_ms, metric, is_in_span }
        });
        counted.first_ms = counted.first_ms.min(share.first_ms);
        counted.is_in_span |= is_in_span;
    }

    fn metric_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.metric_indexes.get(name) {
            return *index;
        }
        let place = self.costs.len();
        self.costs.push(Cost { metric: name.to_owned(), ..Cost::default() });
        self.metric_indexes.insert(name.into(), place);
        self.bytes += VALUE_BYTES + name.len() as u64;
        place
    }

    fn count_values(&mut self, labels: &Labels) {
        for (name, value) in labels.iter() {
            let values = match self.values.get_mut(name) {
                Some(values) => values,
                None => self.values.entry(name.to_owned()).or_default(),
            };
            if add_count(values, value, 1) {
                self.bytes += VALUE_BYTES + value.len() as u64;
            }
        }
    }

    fn finish(mut self, limit: usize) -> CardinalityStats {
        let TimeSpan { start, end } = self.span;
        let period_ms =
            if end.saturating_sub(start) <= HOURLY_SPAN_MAX_MS { HOUR_MS } else { DAY_MS };
        let mut stats = CardinalityStats {
            period_ms,
            largest: find_largest(&self.values, limit),
            ..CardinalityStats::default()
        };
        let mut new_by_period: BTreeMap<TimeMs, u64> = BTreeMap::new();
        for counted in self.counted_series.values().filter(|seen| seen.is_in_span) {
            stats.series += 1;
            if counted.first_ms >= start {
                stats.new_series += 1;
                self.costs[counted.metric].new_series += 1;
                let into_ms = counted.first_ms.rem_euclid(period_ms);
                let period = counted.first_ms.saturating_sub(into_ms);
                *new_by_period.entry(period).or_default() += 1;
            }
        }
        self.costs.retain(|cost| cost.series > 0);
        self.costs.sort_by(|left, right| {
            let bytes = |cost: &Cost| cost.disk_bytes + cost.memory_bytes;
            let by_bytes = bytes(right).cmp(&bytes(left));
            by_bytes.then_with(|| left.metric.cmp(&right.metric))
        });
        self.costs.truncate(limit);
        stats.costs = self.costs;
        stats.new_by_period = new_by_period.into_iter().collect();
        stats
    }
}
