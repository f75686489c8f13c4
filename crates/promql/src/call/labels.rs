//! `label_replace` and `label_join`.

use egret_metrics_model::matcher::compile_anchored;
use egret_metrics_model::{LabelsBuilder, METRIC_NAME};

use super::super::answer::merge_by_labels;
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::row::{ExprValue, Grid, LabeledRow};
use super::super::syntax::ExprNode;

impl EvalContext<'_> {
    /// The text of a string argument.
    pub(super) fn eval_text(&self, node: &ExprNode, grid: Grid) -> Result<String, QueryError> {
        match self.eval(node, grid)? {
            ExprValue::Text(bytes) => String::from_utf8(bytes).map_err(|error| {
                let shown = error.as_bytes().escape_ascii();
                QueryError::execution(format!("\"{shown}\" is not UTF-8"))
            }),
            _ => Err(QueryError::execution("expected a string")),
        }
    }

    /// A label's name. The messages are Prometheus's.
    fn label_name(&self, node: &ExprNode, grid: Grid, refusal: &str) -> Result<String, QueryError> {
        match self.eval_text(node, grid) {
            Ok(name) if !name.is_empty() => Ok(name),
            Ok(name) => Err(QueryError::execution(format!("{refusal}: {name}"))),
            Err(error) => Err(QueryError::execution(format!("{refusal}: {error}"))),
        }
    }

    pub(super) fn label_replace(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let refusal = "invalid destination label name in label_replace()";
        let target = self.label_name(&arguments[1], grid, refusal)?;
        let replacement = self.eval_text(&arguments[2], grid)?;
        let source = self.eval_text(&arguments[3], grid)?;
        let pattern = self.eval_text(&arguments[4], grid)?;
        let regex = compile_anchored(&pattern).map_err(|_| {
            QueryError::execution(format!(
                "invalid regular expression in label_replace(): {pattern}"
            ))
        })?;
        let mut series = self.eval_vector(&arguments[0], grid)?;
        for series_row in &mut series {
            let Some(captures) = regex.captures(series_row.labels.get(&source)) else {
                continue;
            };
            let mut value = String::new();
            captures.expand(&replacement, &mut value);
            let labels =
                LabelsBuilder::from_labels(&series_row.labels).set(&target, &value).build();
            series_row.labels = labels;
            series_row.drop_name &= target != METRIC_NAME;
        }
        merge_by_labels(series)
    }

    pub(super) fn label_join(
        &self,
        arguments: &[ExprNode],
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let refusal = "invalid destination label name in label_join()";
        let target = self.label_name(&arguments[1], grid, refusal)?;
        let separator = self.eval_text(&arguments[2], grid)?;
        let refusal = "invalid source label name in label_join()";
        let sources: Vec<String> = arguments[3..]
            .iter()
            .map(|node| self.label_name(node, grid, refusal))
            .collect::<Result<_, _>>()?;
        let mut series = self.eval_vector(&arguments[0], grid)?;
        for series_row in &mut series {
            let values: Vec<&str> =
                sources.iter().map(|name| series_row.labels.get(name)).collect();
            let value = values.join(&separator);
            let labels =
                LabelsBuilder::from_labels(&series_row.labels).set(&target, &value).build();
            series_row.labels = labels;
            series_row.drop_name &= target != METRIC_NAME;
        }
        merge_by_labels(series)
    }
}
