//! What a query must be answered with: worked out from the fleet, without having kept a sample.
//!
//! Written to be plainly right, not fast. Windows are open on the left or closed, which is the same
//! for the times that are asked about: no sample is ever at a window's end.

use std::collections::{BTreeMap, HashMap};

use super::expression::{
    Aggregate, Expr, ExprOperator, ExprWindow, Grouping, LOOK_BACK_MS, Matcher, Matching, Selector,
    WindowFunction,
};
use super::fleet::{Fleet, INTERVAL_MS};
use super::points::{Point, Span, quantile, quantile_of_buckets, standard_deviation};
use super::shape::Shape;

/// Labels of a value.
pub(super) type Labels = BTreeMap<String, String>;

/// Values at one moment.
pub(super) type Vector = Vec<(Labels, f64)>;

const NAME: &str = "__name__";

/// The fleet with what has to be known of every series to pick some.
pub(super) struct Catalog {
    fleet: Fleet,
    series: Vec<IndexedSeries>,
    metrics: HashMap<String, Vec<usize>>,
    /// Series by metric and one of [`INDEXED`] with its value.
    series_by_label: HashMap<(String, &'static str, String), Vec<usize>>,
}

/// Labels by which queries pick few of many series.
const INDEXED: [&str; 5] = ["pod", "service", "node", "namespace", "zone"];

struct IndexedSeries {
    labels: Labels,
    shape: Shape,
    shift_ms: i64,
}

impl Catalog {
    pub(super) fn new(fleet: Fleet) -> Self {
        let mut metrics: HashMap<String, Vec<usize>> = HashMap::new();
        let mut series_by_label: HashMap<_, Vec<usize>> = HashMap::new();
        let series = (0..fleet.series).map(|number| {
            let pairs = fleet.labels(number).into_iter();
            let labels: Labels = pairs.map(|(name, value)| (name.to_owned(), value)).collect();
            let (metric, index) = (&labels[NAME], number as usize);
            metrics.entry(metric.clone()).or_default().push(index);
            for name in INDEXED {
                if let Some(value) = labels.get(name) {
                    let key = (metric.clone(), name, value.clone());
                    series_by_label.entry(key).or_default().push(index);
                }
            }
            IndexedSeries { shape: fleet.shape(number), shift_ms: fleet.shift_ms(number), labels }
        });
        Self { fleet, series: series.collect(), metrics, series_by_label }
    }

    pub(super) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What a query is worth at a moment.
    pub(super) fn evaluate(&self, expr: &Expr, at_ms: i64) -> Vector {
        match expr {
            Expr::Number(number) => vec![(Labels::new(), *number)],
            Expr::Select(selector) => {
                let entries = self.select(selector);
                let last =
                    entries.filter_map(|entry| Some((entry, self.last_point(entry, at_ms)?)));
                last.map(|(entry, point)| (entry.labels.clone(), point.1)).collect()
            }
            Expr::Timestamp(selector) => {
                let picked = self.select(selector);
                let last = picked.filter_map(|entry| Some((entry, self.last_point(entry, at_ms)?)));
                last.map(|(entry, point)| (without_name(&entry.labels), point.0 as f64 / 1_000.0))
                    .collect()
            }
            Expr::Absent(selector) => {
                if self.select(selector).any(|entry| self.last_point(entry, at_ms).is_some()) {
                    Vec::new()
                } else {
                    vec![(absent_labels(selector), 1.0)]
                }
            }
            Expr::Over(function, parameter, window) => {
                let (span, windows) = self.windows(window, at_ms);
                let values = windows.into_iter().filter_map(|(labels, points)| {
                    let value = function.evaluate(*parameter, span, &points)?;
                    // What picks a sample leaves it its name.
                    let labels = if *function == WindowFunction::Last {
                        labels
                    } else {
                        without_name(&labels)
                    };
                    Some((labels, value))
                });
                values.collect()
            }
            Expr::Aggregate(aggregate, parameter, grouping, inner) => {
                let values = self.evaluate(inner, at_ms);
                aggregate_vector(*aggregate, *parameter, grouping, values)
            }
            Expr::Binary(operator, matching, left, right) => {
                let (left, right) = (self.evaluate(left, at_ms), self.evaluate(right, at_ms));
                combine_vectors(*operator, matching, left, &right)
            }
            Expr::HistogramQuantile(quantile, of) => {
                let mut histograms: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
                for (mut labels, value) in self.evaluate(of, at_ms) {
                    let bound = labels
                        .remove("le")
                        .and_then(|le| le.parse().ok())
                        .expect("only buckets are asked for, and they have bounds");
                    histograms.entry(without_name(&labels)).or_default().push((bound, value));
                }
                let quantiles = histograms.into_iter();
                quantiles
                    .map(|(labels, buckets)| (labels, quantile_of_buckets(*quantile, buckets)))
                    .collect()
            }
        }
    }

    fn select(&self, selector: &Selector) -> impl Iterator<Item = &IndexedSeries> {
        let indexed = selector.matchers.iter().find_map(|matcher| match matcher {
            Matcher::Equal(label, value) if INDEXED.contains(label) => {
                let key = (selector.metric.to_owned(), *label, value.clone());
                Some(self.series_by_label.get(&key))
            }
            _ => None,
        });
        let candidates = indexed.unwrap_or_else(|| self.metrics.get(selector.metric));
        let entries = candidates.into_iter().flatten().map(|number| &self.series[*number]);
        entries.filter(|entry| {
            let has_label = |label: &str, value: &String| entry.labels.get(label) == Some(value);
            selector.matchers.iter().all(|matcher| match matcher {
                Matcher::Equal(label, value) => has_label(label, value),
                Matcher::NotEqual(label, value) => !has_label(label, value),
                Matcher::OneOf(label, values) => values.iter().any(|value| has_label(label, value)),
            })
        })
    }

    /// Samples after `from_ms` and not after `to_ms`.
    fn points(&self, entry: &IndexedSeries, from_ms: i64, to_ms: i64) -> Vec<Point> {
        let step_of =
            |at_ms: i64| (at_ms - self.fleet.begin_ms - entry.shift_ms).div_euclid(INTERVAL_MS);
        let steps = (step_of(from_ms) + 1).max(0)..=step_of(to_ms);
        let point = |step: i64| {
            let step = step as u64;
            (self.fleet.step_ms(step) + entry.shift_ms, entry.shape.value_at(step))
        };
        steps.map(point).collect()
    }

    fn last_point(&self, entry: &IndexedSeries, at_ms: i64) -> Option<Point> {
        self.points(entry, at_ms - LOOK_BACK_MS, at_ms).pop()
    }

    /// The points of each series in a window, and where that was.
    fn windows(&self, window: &ExprWindow, at_ms: i64) -> (Span, Vec<(Labels, Vec<Point>)>) {
        match window {
            ExprWindow::Samples { selector, range_ms, offset_ms } => {
                let to_ms = at_ms - offset_ms;
                let from_ms = to_ms - range_ms;
                let entries = self.select(selector);
                let windows =
                    entries.map(|entry| (entry.labels.clone(), self.points(entry, from_ms, to_ms)));
                (Span { from_ms, to_ms }, windows.collect())
            }
            ExprWindow::Subquery { inner, range_ms, step_ms } => {
                let from_ms = at_ms - range_ms;
                let mut windows: BTreeMap<Labels, Vec<Point>> = BTreeMap::new();
                // At multiples of the step, whatever the window's ends are.
                let mut moment_ms = (from_ms.div_euclid(*step_ms) + 1) * step_ms;
                while moment_ms <= at_ms {
                    for (labels, value) in self.evaluate(inner, moment_ms) {
                        windows.entry(labels).or_default().push((moment_ms, value));
                    }
                    moment_ms += step_ms;
                }
                let span = Span { from_ms, to_ms: at_ms };
                (span, windows.into_iter().collect())
            }
        }
    }
}

/// Labels without the metric's name, which functions and operators take away.
fn without_name(labels: &Labels) -> Labels {
    let mut labels = labels.clone();
    labels.remove(NAME);
    labels
}

/// What a selector says about the labels of what is not there.
fn absent_labels(selector: &Selector) -> Labels {
    let fixed_labels = selector.matchers.iter().filter_map(|matcher| match matcher {
        Matcher::Equal(label, value) => Some(((*label).to_owned(), value.clone())),
        Matcher::NotEqual(..) | Matcher::OneOf(..) => None,
    });
    fixed_labels.collect()
}

fn keep_labels(labels: &Labels, names: &[&str]) -> Labels {
    let kept = labels.iter().filter(|(name, _)| names.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// All labels but these and the name.
fn drop_labels(labels: &Labels, names: &[&str]) -> Labels {
    let kept =
        labels.iter().filter(|(name, _)| name.as_str() != NAME && !names.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn aggregate_vector(
    aggregate: Aggregate,
    parameter: Option<f64>,
    grouping: &Grouping,
    values: Vector,
) -> Vector {
    let mut groups: BTreeMap<Labels, Vector> = BTreeMap::new();
    for (labels, value) in values {
        let group = match grouping {
            Grouping::By(names) => keep_labels(&labels, names),
            Grouping::Without(names) => drop_labels(&labels, names),
        };
        groups.entry(group).or_default().push((labels, value));
    }
    let parameter = parameter.unwrap_or(0.0);
    let aggregated = groups.into_iter().flat_map(|(labels, mut group)| {
        let values: Vec<f64> = group.iter().map(|(_, value)| *value).collect();
        let sum = values.iter().sum::<f64>();
        let value = match aggregate {
            Aggregate::Sum => sum,
            Aggregate::Avg => sum / values.len() as f64,
            Aggregate::Min => values.into_iter().fold(f64::INFINITY, f64::min),
            Aggregate::Max => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
            Aggregate::Count => values.len() as f64,
            Aggregate::Stddev => standard_deviation(&values),
            Aggregate::Quantile => quantile(parameter, values),
            Aggregate::Topk | Aggregate::Bottomk => {
                group.sort_by(|one, other| match aggregate {
                    Aggregate::Topk => other.1.total_cmp(&one.1),
                    _ => one.1.total_cmp(&other.1),
                });
                group.truncate(parameter as usize);
                return group;
            }
        };
        vec![(labels, value)]
    });
    aggregated.collect()
}

fn combine_vectors(
    operator: ExprOperator,
    matching: &Matching,
    left: Vector,
    right: &Vector,
) -> Vector {
    let key = |labels: &Labels| match matching {
        Matching::SameLabels => without_name(labels),
        Matching::On(names) | Matching::OnGroupLeft(names) => keep_labels(labels, names),
        Matching::Ignoring(names) => drop_labels(labels, names),
    };
    let scalar = match &right[..] {
        [(labels, value)] if labels.is_empty() && *matching == Matching::SameLabels => Some(*value),
        _ => None,
    };
    let right_values: BTreeMap<Labels, f64> =
        right.iter().map(|(labels, value)| (key(labels), *value)).collect();
    let values = left.into_iter().filter_map(|(labels, lhs)| {
        let rhs = scalar.or_else(|| right_values.get(&key(&labels)).copied());
        if operator == ExprOperator::Unless {
            return rhs.is_none().then_some((labels, lhs));
        }
        let other = rhs?;
        let value = match operator {
            ExprOperator::Add => lhs + other,
            ExprOperator::Subtract => lhs - other,
            ExprOperator::Multiply => lhs * other,
            ExprOperator::Divide => lhs / other,
            ExprOperator::Greater => return (lhs > other).then_some((labels, lhs)),
            ExprOperator::Less => return (lhs < other).then_some((labels, lhs)),
            ExprOperator::Equal => return (lhs == other).then_some((labels, lhs)),
            ExprOperator::Unless => return None,
        };
        let labels = match matching {
            Matching::On(names) => keep_labels(&labels, names),
            Matching::Ignoring(names) => drop_labels(&labels, names),
            Matching::SameLabels | Matching::OnGroupLeft(_) => without_name(&labels),
        };
        Some((labels, value))
    });
    values.collect()
}

#[cfg(test)]
mod tests;
