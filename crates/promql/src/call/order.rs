//! Sorting, which an instant query shows; a range query has the order of its labels.

use std::cmp::Ordering;

use super::super::annotations::sort_in_range;
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::row::{Grid, LabeledRow};
use super::super::syntax::{Call, ExprNode};

impl EvalContext<'_> {
    pub(super) fn sort_series(
        &self,
        node: &ExprNode,
        call: &Call,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let mut series = self.eval_vector(&call.arguments[0], grid)?;
        let is_by_label = call.name().starts_with("sort_by_label");
        if !is_by_label {
            // What has no order among numbers is left out.
            series.iter_mut().for_each(|one| one.row.histograms.clear());
            series.retain(|one| !one.row.is_empty());
        }
        if grid.end != grid.start {
            self.warn(node, sort_in_range());
        }
        if grid.count != 1 {
            return Ok(series);
        }
        let is_descending = call.name().ends_with("_desc");
        let apply_direction = |order: Ordering| {
            if is_descending { order.reverse() } else { order }
        };
        if is_by_label {
            let names: Vec<String> = call.arguments[1..]
                .iter()
                .map(|node| self.eval_text(node, grid))
                .collect::<Result<_, _>>()?;
            series.sort_by(|a, b| {
                let by_names = names
                    .iter()
                    .map(|name| compare_natural(a.labels.get(name), b.labels.get(name)));
                let found = by_names.into_iter().find(|order| order.is_ne());
                apply_direction(found.unwrap_or_else(|| a.labels.cmp(&b.labels)))
            });
            return Ok(series);
        }
        series.sort_by(|a, b| {
            let (a, b) = (a.row.values[0], b.row.values[0]);
            let order = apply_direction(a.partial_cmp(&b).unwrap_or(Ordering::Equal));
            a.is_nan().cmp(&b.is_nan()).then(order)
        });
        Ok(series)
    }
}

/// Compares as people do: runs of digits by the numbers they are.
fn compare_natural(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let (a, left_rest, left_is_number) = split_run(left);
        let (b, right_rest, right_is_number) = split_run(right);
        if a.is_empty() || b.is_empty() {
            return left.len().cmp(&right.len());
        }
        let order = if left_is_number && right_is_number {
            let (x, y) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y)).then_with(|| a.len().cmp(&b.len()))
        } else {
            a.cmp(b)
        };
        if order.is_ne() {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
}

/// The run of digits or of other characters that a text begins with.
fn split_run(text: &str) -> (&str, &str, bool) {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(text.len());
    let (run, rest) = text.split_at(end);
    (run, rest, is_number)
}
