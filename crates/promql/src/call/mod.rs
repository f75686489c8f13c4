//! Functions of vectors and scalars. Those of ranges are in `range`.

mod classic;
mod info;
mod labels;
mod math;
mod native;
mod order;
mod time;

use egret_metrics_model::{LabelMatcher, Labels, LabelsBuilder, METRIC_NAME, MatchOp};

use super::error::QueryError;
use super::eval::{Consumer, EvalContext, SeriesCollector, SeriesRow};
use super::row::{ExprValue, Grid, LabeledRow, Point, Row};
use super::select::SampleSelection;
use super::syntax::{Call, ExprKind, ExprNode, Selector, ValueType};

impl EvalContext<'_> {
    pub(crate) fn call(
        &self,
        node: &ExprNode,
        call: &Call,
        grid: Grid,
    ) -> Result<ExprValue, QueryError> {
        let arguments = &call.arguments;
        if arguments.iter().any(|argument| argument.value_type() == ValueType::Matrix) {
            return match call.name() {
                "absent_over_time" => self.eval_absent(call, node, grid).map(ExprValue::Vector),
                _ => self.collect_series(node, grid).map(ExprValue::Vector),
            };
        }
        if node.value_type() == ValueType::Scalar {
            return self.call_scalar_function(call, grid).map(ExprValue::Scalar);
        }
        Ok(ExprValue::Vector(match call.name() {
            "absent" => self.eval_absent(call, &arguments[0], grid)?,
            "vector" => vec![LabeledRow {
                labels: Labels::default(),
                drop_name: false,
                row: Row { values: self.eval_scalar(&arguments[0], grid)?, histograms: Vec::new() },
            }],
            "timestamp" => self.timestamps(&arguments[0], grid)?,
            "start_timestamp" => match &arguments[0].without_parens().kind {
                ExprKind::Selector(selector) => {
                    self.collect_selected(selector, grid, SampleSelection::Start)?
                }
                // What is computed does not know it, but has its say.
                _ => {
                    self.eval_vector(&arguments[0], grid)?;
                    Vec::new()
                }
            },
            "label_replace" => self.label_replace(arguments, grid)?,
            "label_join" => self.label_join(arguments, grid)?,
            "sort" | "sort_desc" | "sort_by_label" | "sort_by_label_desc" => {
                self.sort_series(node, call, grid)?
            }
            "histogram_quantile" => {
                let quantiles = self.eval_scalar(&arguments[0], grid)?;
                self.histogram_quantile(&arguments[0], &quantiles, &arguments[1], grid)?
            }
            "histogram_quantiles" => self.histogram_quantiles(arguments, grid)?,
            "histogram_fraction" => self.histogram_fraction(arguments, grid)?,
            "info" => self.info(call, grid)?,
            _ => self.call_sample_function(call, grid)?,
        }))
    }

    fn call_scalar_function(&self, call: &Call, grid: Grid) -> Result<Vec<f64>, QueryError> {
        let constant = |value: f64| Ok(vec![value; grid.count]);
        let query = self.query_grid;
        match call.name() {
            "pi" => constant(std::f64::consts::PI),
            "time" => Ok((0..grid.count).map(|step| grid.time(step) as f64 / 1000.0).collect()),
            "start" => constant(query.start as f64 / 1000.0),
            "end" => constant(query.end as f64 / 1000.0),
            "range" => constant((query.end - query.start) as f64 / 1000.0),
            // One step alone is at no distance from another.
            "step" if query.end == query.start => constant(0.0),
            "step" => constant(query.step_ms as f64 / 1000.0),
            "max_of" | "min_of" => {
                let left = self.eval_scalar(&call.arguments[0], grid)?;
                let right = self.eval_scalar(&call.arguments[1], grid)?;
                let pick = |(left, right): (f64, f64)| match call.name() {
                    "max_of" => math::max_of(left, right),
                    _ => math::min_of(left, right),
                };
                Ok(left.into_iter().zip(right).map(pick).collect())
            }
            "scalar" => {
                let series = self.eval_vector(&call.arguments[0], grid)?;
                let single = |step| {
                    let mut present = series.iter().filter_map(|one| one.row.float(step));
                    match (present.next(), present.next()) {
                        (Some(value), None) => value,
                        _ => f64::NAN,
                    }
                };
                Ok((0..grid.count).map(single).collect())
            }
            other => Err(unknown_function(other)),
        }
    }

    fn collect_selected(
        &self,
        selector: &Selector,
        grid: Grid,
        selection: SampleSelection,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let parts = self.stream_selector(selector, grid, selection, &SeriesCollector::default)?;
        Ok(parts.into_iter().flat_map(|part| part.series).collect())
    }

    /// The times of samples: of a selector's own, else of the step.
    fn timestamps(&self, argument: &ExprNode, grid: Grid) -> Result<Vec<LabeledRow>, QueryError> {
        if let ExprKind::Selector(selector) = &argument.without_parens().kind {
            return self.collect_selected(selector, grid, SampleSelection::Time);
        }
        let mut series = self.eval_vector(argument, grid)?;
        for series_row in &mut series {
            series_row.drop_name = true;
            series_row.row.map(|step, _| Some(Point::Float(grid.time(step) as f64 / 1000.0)));
        }
        Ok(series)
    }

    /// 1 at the steps where no series has a sample.
    fn eval_absent(
        &self,
        call: &Call,
        rows: &ExprNode,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let step_sets = match call.name() {
            "absent_over_time" => {
                let parts = self.stream_range(call, grid, &|| StepSet::new(grid));
                parts.ok_or_else(|| unknown_function(call.name()))??
            }
            _ => self.stream_rows(rows, grid, || StepSet::new(grid))?,
        };
        let mut row = Row::absent(grid.count);
        for (step, value) in row.values.iter_mut().enumerate() {
            if !step_sets.iter().any(|part| part.steps[step]) {
                *value = 1.0;
            }
        }
        if row.is_empty() {
            return Ok(Vec::new());
        }
        let labels = match &call.arguments[0].without_parens().kind {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => {
                absent_labels(&selector.matchers)
            }
            _ => Labels::default(),
        };
        Ok(vec![LabeledRow { labels, drop_name: false, row }])
    }
}

fn unknown_function(function: &str) -> QueryError {
    QueryError::execution(format!("function {function} is not known to this version"))
}

/// Remembers at which steps there was a sample.
struct StepSet {
    steps: Vec<bool>,
}

impl StepSet {
    fn new(grid: Grid) -> Self {
        Self { steps: vec![false; grid.count] }
    }
}

impl Consumer for StepSet {
    fn consume(
        &mut self,
        _env: &EvalContext<'_>,
        series_row: SeriesRow<'_>,
    ) -> Result<(), QueryError> {
        for (step, is_present) in self.steps.iter_mut().enumerate() {
            *is_present |= series_row.row.has_sample(step);
        }
        Ok(())
    }
}

/// The labels that an absent series would have had: those a selector asks for by `=`, each asked
/// for once.
fn absent_labels(matchers: &[LabelMatcher]) -> Labels {
    let mut labels = LabelsBuilder::default();
    for (index, matcher) in matchers.iter().enumerate() {
        let matcher = matcher.matcher();
        let has_same_name = |other: &LabelMatcher| other.matcher().name == matcher.name;
        let others = matchers.iter().enumerate().filter(|(other, _)| *other != index);
        let is_only_matcher = !others.into_iter().any(|(_, other)| has_same_name(other));
        if matcher.op == MatchOp::Equal && *matcher.name != *METRIC_NAME && is_only_matcher {
            labels.set(&matcher.name, &matcher.value);
        }
    }
    labels.build()
}

#[cfg(test)]
mod tests;
