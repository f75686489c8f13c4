//! What an operator makes of two samples.

use egret_metrics_model::is_stale;

use super::super::annotations::{self, Annotations};
use super::super::histogram::{FloatHistogram, HistogramConflicts, Incompatible, TrimSide};
use super::super::row::{LabeledRow, Point, absent_value};
use super::super::syntax::{Operator, Position};

/// An operator where it stands.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub operator: Operator,
    pub returns_bool: bool,
    pub position: Position,
}

fn evaluate_comparison(operator: Operator, left: f64, right: f64) -> bool {
    match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Greater => left > right,
        Operator::Less => left < right,
        Operator::GreaterOrEqual => left >= right,
        Operator::LessOrEqual => left <= right,
        _ => false,
    }
}

/// An operator between two numbers; a comparison gives 0 or 1.
pub(super) fn scalar_operation(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Sub => left - right,
        Operator::Mul => left * right,
        Operator::Div => left / right,
        Operator::Mod => left % right,
        Operator::Pow => left.powf(right),
        Operator::Atan2 => left.atan2(right),
        _ => f64::from(u8::from(evaluate_comparison(operator, left, right))),
    }
}

/// A number of two; absent where a comparison does not hold.
pub(super) type BinaryMathFn = fn(f64, f64) -> f64;

impl Operation {
    /// What becomes of two numbers.
    pub(super) fn float_fn(&self) -> BinaryMathFn {
        fn keep_if(holds: bool, left: f64) -> f64 {
            if holds { left } else { absent_value() }
        }
        fn to_float(holds: bool) -> f64 {
            if holds { 1.0 } else { 0.0 }
        }
        match (self.operator, self.returns_bool) {
            (Operator::Add, _) => |l, r| l + r,
            (Operator::Sub, _) => |l, r| l - r,
            (Operator::Mul, _) => |l, r| l * r,
            (Operator::Div, _) => |l, r| l / r,
            (Operator::Mod, _) => |l, r| l % r,
            (Operator::Pow, _) => f64::powf,
            (Operator::Atan2, _) => f64::atan2,
            (Operator::Equal, false) => |l, r| keep_if(l == r, l),
            (Operator::NotEqual, false) => |l, r| keep_if(l != r, l),
            (Operator::Greater, false) => |l, r| keep_if(l > r, l),
            (Operator::Less, false) => |l, r| keep_if(l < r, l),
            (Operator::GreaterOrEqual, false) => |l, r| keep_if(l >= r, l),
            (Operator::LessOrEqual, false) => |l, r| keep_if(l <= r, l),
            (Operator::Equal, true) => |l, r| to_float(l == r),
            (Operator::NotEqual, true) => |l, r| to_float(l != r),
            (Operator::Greater, true) => |l, r| to_float(l > r),
            (Operator::Less, true) => |l, r| to_float(l < r),
            (Operator::GreaterOrEqual, true) => |l, r| to_float(l >= r),
            (Operator::LessOrEqual, true) => |l, r| to_float(l <= r),
            (Operator::TrimUpper | Operator::TrimLower, _) => |_, _| absent_value(),
            (Operator::And | Operator::Or | Operator::Unless, _) => {
                unreachable!("sets are not computed with")
            }
        }
    }

    /// Whether the result is another quantity than that the name is of.
    pub(super) fn drops_name(&self) -> bool {
        !(self.operator.is_comparison() || self.operator.is_trim())
    }

    /// Whether the operator has an outcome for two samples, be it that a comparison does not hold.
    pub(super) fn has_outcome(&self, left: &Point, right: &Point, result: Option<&Point>) -> bool {
        let is_compared = match (left, right) {
            (Point::Float(_), Point::Float(_)) => self.operator.is_comparison(),
            (Point::Histogram(_), Point::Histogram(_)) => {
                matches!(self.operator, Operator::Equal | Operator::NotEqual)
            }
            _ => false,
        };
        is_compared || result.is_some()
    }

    /// What becomes of two samples; nothing when a comparison does not hold or there is no such
    /// operation.
    pub(super) fn apply(
        &self,
        left: &Point,
        right: &Point,
        notes: &mut Annotations,
    ) -> Option<Point> {
        let holds = match (left, right) {
            (Point::Float(_), Point::Float(_)) if self.operator.is_trim() => {
                return self.note_incompatible("float", "float", notes);
            }
            (Point::Float(left), Point::Float(right)) => {
                if !self.operator.is_comparison() {
                    return Some(Point::Float(scalar_operation(self.operator, *left, *right)));
                }
                evaluate_comparison(self.operator, *left, *right)
            }
            (Point::Histogram(left), Point::Histogram(right)) => match self.operator {
                Operator::Add | Operator::Sub => {
                    return self.apply_to_histograms(left, right, notes);
                }
                Operator::Equal => super::super::histogram::is_equal_ignoring_reset(left, right),
                Operator::NotEqual => {
                    !super::super::histogram::is_equal_ignoring_reset(left, right)
                }
                _ => return self.note_incompatible("histogram", "histogram", notes),
            },
            (Point::Histogram(histogram), Point::Float(factor)) => {
                return match self.operator {
                    Operator::Mul => Some(map_histogram(histogram, |copy| copy.multiply(*factor))),
                    Operator::Div => Some(map_histogram(histogram, |copy| copy.divide(*factor))),
                    Operator::TrimUpper => {
                        Some(map_histogram(histogram, |copy| copy.trim(*factor, TrimSide::Below)))
                    }
                    Operator::TrimLower => {
                        Some(map_histogram(histogram, |copy| copy.trim(*factor, TrimSide::Above)))
                    }
                    _ => self.note_incompatible("histogram", "float", notes),
                };
            }
            (Point::Float(factor), Point::Histogram(histogram)) => {
                return match self.operator {
                    Operator::Mul => Some(map_histogram(histogram, |copy| copy.multiply(*factor))),
                    _ => self.note_incompatible("float", "histogram", notes),
                };
            }
        };
        match (self.returns_bool, holds) {
            (true, held) => Some(Point::Float(f64::from(u8::from(held)))),
            (false, true) => Some(left.clone()),
            (false, false) => None,
        }
    }

    fn note_incompatible(&self, left: &str, right: &str, notes: &mut Annotations) -> Option<Point> {
        let text = annotations::incompatible_types(self.operator.name(), left, right);
        notes.info(self.position, text);
        None
    }

    fn apply_to_histograms(
        &self,
        left: &FloatHistogram,
        right: &FloatHistogram,
        notes: &mut Annotations,
    ) -> Option<Point> {
        let mut result = left.clone();
        let (outcome, operation_name) = match self.operator {
            Operator::Add => (result.add(right), "addition"),
            _ => (result.subtract(right), "subtraction"),
        };
        match outcome {
            Err(Incompatible) => {
                let operator = self.operator.name();
                let text = format!(
                    "incompatible bucket layout encountered for binary operator {operator}"
                );
                notes.warn(self.position, text);
                return None;
            }
            Ok(HistogramConflicts { bounds, reset_collision }) => {
                if bounds {
                    notes.info(self.position, annotations::bounds_reconciled(operation_name));
                }
                if reset_collision {
                    notes.warn(self.position, annotations::reset_collision(operation_name));
                }
            }
        }
        Some(Point::Histogram(result.into()))
    }

    /// An operator between series and a scalar, which stands on the left when `is_swapped`.
    pub(super) fn apply_scalar(
        &self,
        mut series: Vec<LabeledRow>,
        scalars: &[f64],
        is_swapped: bool,
        notes: &mut Annotations,
    ) -> Vec<LabeledRow> {
        let float_fn = self.float_fn();
        let keeps_sample = self.operator.is_comparison() && !self.returns_bool;
        for series_row in &mut series {
            series_row.drop_name |= self.drops_name() || self.returns_bool;
            if series_row.row.histograms.is_empty() && !self.operator.is_trim() {
                for (value, scalar) in series_row.row.values.iter_mut().zip(scalars) {
                    if is_stale(*value) {
                        continue;
                    }
                    let result = if is_swapped {
                        float_fn(*scalar, *value)
                    } else {
                        float_fn(*value, *scalar)
                    };
                    // A comparison that holds keeps the series' sample, on whichever side it
                    // stands.
                    if !keeps_sample || is_stale(result) {
                        *value = result;
                    }
                }
                continue;
            }
            series_row.row.map(|step, point| {
                let scalar = Point::Float(scalars[step]);
                let result = if is_swapped {
                    self.apply(&scalar, &point, notes)
                } else {
                    self.apply(&point, &scalar, notes)
                };
                if keeps_sample { result.map(|_| point) } else { result }
            });
        }
        series.retain(|one| !one.row.is_empty());
        series
    }
}

fn map_histogram(histogram: &FloatHistogram, change: impl FnOnce(&mut FloatHistogram)) -> Point {
    let mut copy = histogram.clone();
    change(&mut copy);
    Point::Histogram(copy.into())
}
