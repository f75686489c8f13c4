//! Quantiles and fractions of histograms, native or classic.

use std::sync::LazyLock;

use egret_metrics_model::{Labels, LabelsBuilder};

use super::super::annotations::{self, Annotations, MonotonicityFixes, for_metric};
use super::super::answer::merge_by_labels;
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::histogram::{FloatHistogram, NanEffect};
use super::super::keys::Keys;
use super::super::number;
use super::super::row::{Grid, LabeledRow, Point, Row};
use super::super::syntax::{ExprNode, Grouping, Position};
use super::classic::{self, ClassicBucket};

const BUCKET_LABEL: &str = "le";

/// Series that are one histogram: a native one, or the buckets of a classic one.
#[derive(Default)]
struct HistogramSeries {
    labels: Labels,
    natives: Vec<usize>,
    buckets: Vec<(f64, usize)>,
}

/// What is asked of a histogram at a step.
trait HistogramFunction {
    fn evaluate_native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Annotations,
    ) -> f64;
    fn evaluate_classic(
        &self,
        step: usize,
        buckets: &mut [ClassicBucket],
        metric: &str,
        notes: &mut Annotations,
    ) -> f64;
}

struct Quantile<'a> {
    quantiles: &'a [f64],
    grid: Grid,
    position: Position,
}

struct Fraction {
    lower: Vec<f64>,
    upper: Vec<f64>,
    position: Position,
}

impl HistogramFunction for Quantile<'_> {
    fn evaluate_native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Annotations,
    ) -> f64 {
        let (value, nan_effect) = histogram.quantile(self.quantiles[step]);
        let text = match nan_effect {
            NanEffect::None => return value,
            NanEffect::IsResult => {
                "input to histogram_quantile has NaN observations, result is NaN"
            }
            NanEffect::SkewsResult => {
                "input to histogram_quantile has NaN observations, result is skewed higher"
            }
        };
        notes.info(self.position, for_metric(text, metric));
        value
    }

    fn evaluate_classic(
        &self,
        step: usize,
        buckets: &mut [ClassicBucket],
        metric: &str,
        notes: &mut Annotations,
    ) -> f64 {
        let (value, fix) = classic::quantile(self.quantiles[step], buckets);
        if let Some(forced) = fix {
            let text = "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
            let fixes = MonotonicityFixes {
                bounds: forced.bounds,
                difference: forced.difference,
                histograms: 1,
                times: (self.grid.time(step), self.grid.time(step)),
            };
            notes.info_with_fixes(self.position, for_metric(text, metric), fixes);
        }
        value
    }
}

impl HistogramFunction for Fraction {
    fn evaluate_native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Annotations,
    ) -> f64 {
        if self.lower[step] < self.upper[step] && histogram.has_nans() {
            let text = "input to histogram_fraction has NaN observations, which are excluded from all fractions";
            notes.info(self.position, for_metric(text, metric));
        }
        histogram.fraction(self.lower[step], self.upper[step])
    }

    fn evaluate_classic(
        &self,
        step: usize,
        buckets: &mut [ClassicBucket],
        _: &str,
        _: &mut Annotations,
    ) -> f64 {
        classic::fraction(self.lower[step], self.upper[step], buckets)
    }
}

impl EvalContext<'_> {
    pub(super) fn histogram_quantile(
        &self,
        quantile_node: &ExprNode,
        quantiles: &[f64],
        argument: &ExprNode,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        for quantile in quantiles.iter().filter(|quantile| !(0.0..=1.0).contains(*quantile)) {
            self.warn(quantile_node, annotations::invalid_quantile(*quantile));
        }
        let function = Quantile { quantiles, grid, position: argument.without_parens().position };
        self.evaluate_histograms(argument, grid, &function)
    }

    /// Several quantiles at once, each with a label that says which.
    pub(super) fn histogram_quantiles(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let name = self.eval_text(&arguments[1], grid)?;
        let mut result = Vec::new();
        for quantile_node in &arguments[2..] {
            let quantiles = self.eval_scalar(quantile_node, grid)?;
            let label = number::format_open_metrics(quantiles[0]);
            for mut series_row in
                self.histogram_quantile(quantile_node, &quantiles, &arguments[0], grid)?
            {
                series_row.labels =
                    LabelsBuilder::from_labels(&series_row.labels).set(&name, &label).build();
                result.push(series_row);
            }
        }
        // That two quantiles have the same labels is found out at the end of an instant query.
        if grid.end == grid.start { Ok(result) } else { merge_by_labels(result) }
    }

    pub(super) fn histogram_fraction(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let function = Fraction {
            lower: self.eval_scalar(&arguments[0], grid)?,
            upper: self.eval_scalar(&arguments[1], grid)?,
            position: arguments[2].without_parens().position,
        };
        self.evaluate_histograms(&arguments[2], grid, &function)
    }

    fn evaluate_histograms(
        &self,
        argument: &ExprNode,
        grid: Grid,
        function: &dyn HistogramFunction,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let series = self.eval_vector(argument, grid)?;
        let mut notes = Annotations::default();
        let mut result = Vec::new();
        let mut buckets = Vec::new();
        for group in group_histograms(&series, argument, &mut notes) {
            self.check_stop()?;
            let mut row = Row::absent(grid.count);
            for step in 0..grid.count {
                let histogram_step = HistogramStep { group: &group, series: &series, step };
                let value = histogram_step.evaluate(argument, function, &mut buckets, &mut notes);
                row.set(step, value.map(Point::Float));
            }
            if !row.is_empty() {
                self.charge_bytes(row.size_bytes())?;
                result.push(LabeledRow { labels: group.labels, drop_name: true, row });
            }
        }
        self.add_annotations(notes);
        Ok(result)
    }
}

/// A group at a step.
struct HistogramStep<'a> {
    group: &'a HistogramSeries,
    series: &'a [LabeledRow],
    step: usize,
}

impl HistogramStep<'_> {
    /// `buckets` is memory that is used again.
    fn evaluate(
        &self,
        argument: &ExprNode,
        function: &dyn HistogramFunction,
        buckets: &mut Vec<ClassicBucket>,
        notes: &mut Annotations,
    ) -> Option<f64> {
        let (group, step) = (self.group, self.step);
        let metric = group.labels.metric();
        let mut natives = group.natives.iter();
        let native = natives.find_map(|at| self.series[*at].row.histogram(step));
        buckets.clear();
        for (upper, at) in &group.buckets {
            let Some(count) = self.series[*at].row.float(step) else {
                continue;
            };
            match buckets.last_mut() {
                Some(last) if last.upper == *upper => last.count += count,
                _ => buckets.push(ClassicBucket { upper: *upper, count }),
            }
        }
        match (native, buckets.is_empty()) {
            (Some(_), false) => {
                let text = "vector contains a mix of classic and native histograms";
                notes.warn(argument.without_parens().position, for_metric(text, metric));
                None
            }
            (Some(histogram), true) => {
                Some(function.evaluate_native(step, histogram, metric, notes))
            }
            (None, false) => Some(function.evaluate_classic(step, buckets, metric, notes)),
            (None, true) => None,
        }
    }
}

/// All labels but that of the bound.
static WITHOUT_BOUND: LazyLock<Grouping> =
    LazyLock::new(|| Grouping::new(false, vec![BUCKET_LABEL.into()]));

/// Series by their labels without `le`, the buckets of each by their bounds.
fn group_histograms(
    series: &[LabeledRow],
    argument: &ExprNode,
    notes: &mut Annotations,
) -> Vec<HistogramSeries> {
    let mut keys = Keys::new_with_names(&WITHOUT_BOUND);
    // Native histograms may have the label, too, as any other.
    let mut natives_with_bound = Vec::new();
    let mut groups: Vec<HistogramSeries> = Vec::new();
    let mut find_group = |labels: &Labels, groups: &mut Vec<HistogramSeries>| {
        let index = keys.group_index(labels);
        if index == groups.len() {
            groups.push(HistogramSeries {
                labels: keys.group_labels(labels),
                ..HistogramSeries::default()
            });
        }
        index
    };
    for (at, series_row) in series.iter().enumerate() {
        let has_floats =
            (0..series_row.row.values.len()).any(|step| series_row.row.float(step).is_some());
        let bound = series_row.labels.get(BUCKET_LABEL);
        if series_row.row.histograms.iter().any(Option::is_some) {
            if bound.is_empty() {
                let group = find_group(&series_row.labels, &mut groups);
                groups[group].natives.push(at);
            } else {
                natives_with_bound.push(HistogramSeries {
                    labels: series_row.labels.clone(),
                    natives: vec![at],
                    buckets: Vec::new(),
                });
            }
        }
        if !has_floats {
            continue;
        }
        if let Some(upper) = number::parse(bound) {
            let group = find_group(&series_row.labels, &mut groups);
            groups[group].buckets.push((upper, at));
        } else {
            let metric = series_row.labels.metric();
            let text = format!(
                "bucket label {BUCKET_LABEL:?} is missing or has a malformed value of {bound:?}"
            );
            notes.warn(argument.without_parens().position, for_metric(&text, metric));
        }
    }
    for group in &mut groups {
        group.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups.append(&mut natives_with_bound);
    groups
}
