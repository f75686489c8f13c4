//! Quantiles and fractions of histograms, native or classic.

use std::collections::HashMap;

use super::super::annotations::{self, Notes, for_metric};
use super::super::error::QueryError;
use super::super::eval::Env;
use super::super::histogram::{FloatHistogram, NotNumbers};
use super::super::number;
use super::super::row::{Grid, Point, Row, Series};
use super::super::syntax::{Node, Position};
use super::classic::{self, ClassicBucket};
use crate::model::{Labels, LabelsBuilder};

const BUCKET: &str = "le";

/// Series that are one histogram: a native one, or the buckets of a classic one.
#[derive(Default)]
struct Group {
    labels: Labels,
    natives: Vec<usize>,
    buckets: Vec<(f64, usize)>,
}

/// What is asked of a histogram at a step.
trait Question {
    fn native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Notes,
    ) -> f64;
    fn classic(
        &self,
        step: usize,
        buckets: Vec<ClassicBucket>,
        metric: &str,
        notes: &mut Notes,
    ) -> f64;
}

struct Quantile<'a> {
    quantiles: &'a [f64],
    /// Of the share, and of the vector.
    positions: (Position, Position),
}

struct Fraction {
    lower: Vec<f64>,
    upper: Vec<f64>,
    position: Position,
}

impl Question for Quantile<'_> {
    fn native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Notes,
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
        notes.info(self.positions.0, for_metric(text, metric));
        value
    }

    fn classic(
        &self,
        step: usize,
        buckets: Vec<ClassicBucket>,
        metric: &str,
        notes: &mut Notes,
    ) -> f64 {
        let (value, forced) = classic::quantile(self.quantiles[step], buckets);
        if forced {
            let text = "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
            notes.info(self.positions.1, for_metric(text, metric));
        }
        value
    }
}

impl Question for Fraction {
    fn native(
        &self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        notes: &mut Notes,
    ) -> f64 {
        if histogram.sum.is_nan() {
            let text = "input to histogram_fraction has NaN observations, which are excluded from all fractions";
            notes.info(self.position, for_metric(text, metric));
        }
        histogram.fraction(self.lower[step], self.upper[step])
    }

    fn classic(&self, step: usize, buckets: Vec<ClassicBucket>, _: &str, _: &mut Notes) -> f64 {
        classic::fraction(self.lower[step], self.upper[step], buckets)
    }
}

impl Env<'_> {
    pub(super) fn histogram_quantile(
        &self,
        share: &Node,
        quantiles: &[f64],
        argument: &Node,
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        for quantile in quantiles
            .iter()
            .filter(|quantile| !(0.0..=1.0).contains(*quantile))
        {
            self.warn(share, annotations::invalid_quantile(*quantile));
        }
        let question = Quantile {
            quantiles,
            positions: (share.position, argument.position),
        };
        self.asked(argument, grid, &question)
    }

    /// Several quantiles at once, each with a label that says which.
    pub(super) fn histogram_quantiles(
        &self,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
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
        Ok(all)
    }

    pub(super) fn histogram_fraction(
        &self,
        arguments: &[Node],
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        let question = Fraction {
            lower: self.scalar(&arguments[0], grid)?,
            upper: self.scalar(&arguments[1], grid)?,
            position: arguments[0].position,
        };
        self.asked(&arguments[2], grid, &question)
    }

    fn asked(
        &self,
        argument: &Node,
        grid: Grid,
        question: &dyn Question,
    ) -> Result<Vec<Series>, QueryError> {
        let series = self.vector(argument, grid)?;
        let mut notes = Notes::default();
        let mut result = Vec::new();
        for group in groups(&series, argument, &mut notes) {
            self.check_stop()?;
            let mut row = Row::absent(grid.count);
            for step in 0..grid.count {
                let value = answer(&group, &series, step, argument, question, &mut notes);
                row.set(step, value.map(Point::Float));
            }
            if !row.is_empty() {
                self.charge_bytes(row.size_bytes())?;
                result.push(Series {
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

fn answer(
    group: &Group,
    series: &[Series],
    step: usize,
    argument: &Node,
    question: &dyn Question,
    notes: &mut Notes,
) -> Option<f64> {
    let metric = group.labels.metric();
    let mut natives = group
        .natives
        .iter()
        .filter_map(|at| series[*at].row.histogram(step));
    let native = natives.next();
    let buckets = group.buckets.iter().filter_map(|(upper, at)| {
        let count = series[*at].row.float(step)?;
        Some(ClassicBucket {
            upper: *upper,
            count,
        })
    });
    let buckets: Vec<ClassicBucket> = buckets.collect();
    match (native, buckets.is_empty()) {
        (Some(_), false) => {
            let text = "vector contains a mix of classic and native histograms";
            notes.warn(argument.position, for_metric(text, metric));
            None
        }
        (Some(histogram), true) => Some(question.native(step, histogram, metric, notes)),
        (None, false) => Some(question.classic(step, buckets, metric, notes)),
        (None, true) => None,
    }
}

/// Groups under way.
#[derive(Default)]
struct Groups {
    by_labels: HashMap<Labels, usize>,
    groups: Vec<Group>,
}

impl Groups {
    fn of(&mut self, labels: Labels) -> &mut Group {
        let next = self.groups.len();
        let at = *self.by_labels.entry(labels.clone()).or_insert(next);
        if at == next {
            self.groups.push(Group {
                labels,
                ..Group::default()
            });
        }
        &mut self.groups[at]
    }
}

/// Series by their labels without `le`.
fn groups(series: &[Series], argument: &Node, notes: &mut Notes) -> Vec<Group> {
    let mut groups = Groups::default();
    for (at, one) in series.iter().enumerate() {
        let has_floats = (0..one.row.values.len()).any(|step| one.row.float(step).is_some());
        if one.row.histograms.iter().any(Option::is_some) {
            groups.of(one.labels.clone()).natives.push(at);
        }
        if !has_floats {
            continue;
        }
        let bound = one.labels.get(BUCKET);
        if let Some(upper) = number::parse(bound) {
            let labels = LabelsBuilder::from_labels(&one.labels)
                .remove(BUCKET)
                .build();
            groups.of(labels).buckets.push((upper, at));
        } else {
            let metric = one.labels.metric();
            let text =
                format!("bucket label {BUCKET:?} is missing or has a malformed value of {bound:?}");
            notes.warn(argument.position, for_metric(&text, metric));
        }
    }
    groups.groups
}
