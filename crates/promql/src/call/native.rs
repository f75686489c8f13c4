//! Quantiles and fractions of histograms, native or classic.

use std::sync::LazyLock;

use egret_metrics_model::{Labels, LabelsBuilder};

use super::super::annotations::{self, Annotations, MonotonicityFixes, for_metric};
use super::super::answer::merged;
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::histogram::{FloatHistogram, NotNumbers};
use super::super::keys::Keys;
use super::super::number;
use super::super::row::{Grid, LabeledRow, Point, Row};
use super::super::syntax::{ExprNode, Grouping, Position};
use super::classic::{self, ClassicBucket};

const BUCKET: &str = "le";

/// Series that are one histogram: a native one, or the buckets of a classic one.
#[derive(Default)]
struct HistogramSeries {
    labels: Labels,
    natives: Vec<usize>,
    buckets: Vec<(f64, usize)>,
}

/// What is asked of a histogram at a step.
trait HistogramFunction {
    fn native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Annotations,
    ) -> f64;
    fn classic(
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
    fn native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Annotations,
    ) -> f64 {
        let (value, not_numbers) = histogram.quantile(self.quantiles[step]);
        let text = match not_numbers {
            NotNumbers::None => return value,
            NotNumbers::AreTheResult => {
                "input to histogram_quantile has NaN observations, result is NaN"
            }
            NotNumbers::SkewTheResult => {
                "input to histogram_quantile has NaN observations, result is skewed higher"
            }
        };
        notes.info(self.position, for_metric(text, metric));
        value
    }

    fn classic(
        &self,
        step: usize,
        buckets: &mut [ClassicBucket],
        metric: &str,
        notes: &mut Annotations,
    ) -> f64 {
        let (value, forced) = classic::quantile(self.quantiles[step], buckets);
        if let Some(forced) = forced {
            let text = "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
            let mended = MonotonicityFixes {
                bounds: forced.bounds,
                difference: forced.difference,
                histograms: 1,
                times: (self.grid.time(step), self.grid.time(step)),
            };
            notes.mended(self.position, for_metric(text, metric), mended);
        }
        value
    }
}

impl HistogramFunction for Fraction {
    fn native(
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

    fn classic(
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
        share: &ExprNode,
        quantiles: &[f64],
        argument: &ExprNode,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        for quantile in quantiles
            .iter()
            .filter(|quantile| !(0.0..=1.0).contains(*quantile))
        {
            self.warn(share, annotations::invalid_quantile(*quantile));
        }
        let question = Quantile {
            quantiles,
            grid,
            position: argument.bare().position,
        };
        self.asked(argument, grid, &question)
    }

    /// Several quantiles at once, each with a label that says which.
    pub(super) fn histogram_quantiles(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let name = self.text(&arguments[1], grid)?;
        let mut all = Vec::new();
        for share in &arguments[2..] {
            let quantiles = self.scalar(share, grid)?;
            let label = number::open_metrics(quantiles[0]);
            for mut one in self.histogram_quantile(share, &quantiles, &arguments[0], grid)? {
                one.labels = LabelsBuilder::from_labels(&one.labels)
                    .set(&name, &label)
                    .build();
                all.push(one);
            }
        }
        // That two quantiles have the same labels is found out at the end of an instant query.
        if grid.end == grid.start {
            Ok(all)
        } else {
            merged(all)
        }
    }

    pub(super) fn histogram_fraction(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let question = Fraction {
            lower: self.scalar(&arguments[0], grid)?,
            upper: self.scalar(&arguments[1], grid)?,
            position: arguments[2].bare().position,
        };
        self.asked(&arguments[2], grid, &question)
    }

    fn asked(
        &self,
        argument: &ExprNode,
        grid: Grid,
        question: &dyn HistogramFunction,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let series = self.vector(argument, grid)?;
        let mut notes = Annotations::default();
        let mut result = Vec::new();
        let mut buckets = Vec::new();
        for group in groups(&series, argument, &mut notes) {
            self.check_stop()?;
            let mut row = Row::absent(grid.count);
            for step in 0..grid.count {
                let asked = HistogramStep {
                    group: &group,
                    series: &series,
                    step,
                };
                let value = asked.answer(argument, question, &mut buckets, &mut notes);
                row.set(step, value.map(Point::Float));
            }
            if !row.is_empty() {
                self.charge_bytes(row.size_bytes())?;
                result.push(LabeledRow {
                    labels: group.labels,
                    drop_name: true,
                    row,
                });
            }
        }
        self.note(notes);
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
    fn answer(
        &self,
        argument: &ExprNode,
        question: &dyn HistogramFunction,
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
                _ => buckets.push(ClassicBucket {
                    upper: *upper,
                    count,
                }),
            }
        }
        match (native, buckets.is_empty()) {
            (Some(_), false) => {
                let text = "vector contains a mix of classic and native histograms";
                notes.warn(argument.bare().position, for_metric(text, metric));
                None
            }
            (Some(histogram), true) => Some(question.native(step, histogram, metric, notes)),
            (None, false) => Some(question.classic(step, buckets, metric, notes)),
            (None, true) => None,
        }
    }
}

/// All labels but that of the bound.
static WITHOUT_BOUND: LazyLock<Grouping> =
    LazyLock::new(|| Grouping::new(false, vec![BUCKET.into()]));

/// Series by their labels without `le`, the buckets of each by their bounds.
fn groups(
    series: &[LabeledRow],
    argument: &ExprNode,
    notes: &mut Annotations,
) -> Vec<HistogramSeries> {
    let mut keys = Keys::with_names(&WITHOUT_BOUND);
    // Native histograms may have the label, too, as any other.
    let mut odd = Vec::new();
    let mut groups: Vec<HistogramSeries> = Vec::new();
    let mut find = |labels: &Labels, groups: &mut Vec<HistogramSeries>| {
        let at = keys.group_of(labels);
        if at == groups.len() {
            groups.push(HistogramSeries {
                labels: keys.labels_of(labels),
                ..HistogramSeries::default()
            });
        }
        at
    };
    for (at, one) in series.iter().enumerate() {
        let has_floats = (0..one.row.values.len()).any(|step| one.row.float(step).is_some());
        let bound = one.labels.get(BUCKET);
        if one.row.histograms.iter().any(Option::is_some) {
            if bound.is_empty() {
                let group = find(&one.labels, &mut groups);
                groups[group].natives.push(at);
            } else {
                odd.push(HistogramSeries {
                    labels: one.labels.clone(),
                    natives: vec![at],
                    buckets: Vec::new(),
                });
            }
        }
        if !has_floats {
            continue;
        }
        if let Some(upper) = number::parse(bound) {
            let group = find(&one.labels, &mut groups);
            groups[group].buckets.push((upper, at));
        } else {
            let metric = one.labels.metric();
            let text =
                format!("bucket label {BUCKET:?} is missing or has a malformed value of {bound:?}");
            notes.warn(argument.bare().position, for_metric(&text, metric));
        }
    }
    for group in &mut groups {
        group.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups.append(&mut odd);
    groups
}
