//! What an operator makes of two samples.

use egret_metrics_model::is_stale;

use super::super::annotations::{self, Annotations};
use super::super::histogram::{FloatHistogram, HistogramConflicts, Incompatible, TrimSide};
use super::super::row::{LabeledRow, Point, absent};
use super::super::syntax::{Operator, Position};

/// An operator where it stands.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub operator: Operator,
    pub returns_bool: bool,
    pub position: Position,
}

fn compares(operator: Operator, left: f64, right: f64) -> bool {
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
        _ => f64::from(u8::from(compares(operator, left, right))),
    }
}

/// A number of two; absent where a comparison does not hold.
pub(super) type BinaryMathFn = fn(f64, f64) -> f64;

impl Operation {
    /// What becomes of two numbers.
    pub(super) fn of_floats(&self) -> BinaryMathFn {
        fn kept(holds: bool, left: f64) -> f64 {
            if holds { left } else { absent() }
        }
        fn told(holds: bool) -> f64 {
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
            (Operator::Equal, false) => |l, r| kept(l == r, l),
            (Operator::NotEqual, false) => |l, r| kept(l != r, l),
            (Operator::Greater, false) => |l, r| kept(l > r, l),
            (Operator::Less, false) => |l, r| kept(l < r, l),
            (Operator::GreaterOrEqual, false) => |l, r| kept(l >= r, l),
            (Operator::LessOrEqual, false) => |l, r| kept(l <= r, l),
            (Operator::Equal, true) => |l, r| told(l == r),
            (Operator::NotEqual, true) => |l, r| told(l != r),
            (Operator::Greater, true) => |l, r| told(l > r),
            (Operator::Less, true) => |l, r| told(l < r),
            (Operator::GreaterOrEqual, true) => |l, r| told(l >= r),
            (Operator::LessOrEqual, true) => |l, r| told(l <= r),
            (Operator::TrimUpper | Operator::TrimLower, _) => |_, _| absent(),
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
    pub(super) fn points(
        &self,
        left: &Point,
        right: &Point,
        notes: &mut Annotations,
    ) -> Option<Point> {
        let compared = match (left, right) {
            (Point::Float(_), Point::Float(_)) if self.operator.is_trim() => {
                return self.incompatible("float", "float", notes);
            }
            (Point::Float(left), Point::Float(right)) => {
                if !self.operator.is_comparison() {
                    return Some(Point::Float(scalar_operation(self.operator, *left, *right)));
                }
                compares(self.operator, *left, *right)
            }
            (Point::Histogram(left), Point::Histogram(right)) => match self.operator {
                Operator::Add | Operator::Sub => return self.histograms(left, right, notes),
                Operator::Equal => super::super::histogram::is_same(left, right),
                Operator::NotEqual => !super::super::histogram::is_same(left, right),
                _ => return self.incompatible("histogram", "histogram", notes),
            },
            (Point::Histogram(histogram), Point::Float(factor)) => {
                return match self.operator {
                    Operator::Mul => Some(changed(histogram, |copy| copy.multiply(*factor))),
                    Operator::Div => Some(changed(histogram, |copy| copy.divide(*factor))),
                    Operator::TrimUpper => Some(changed(histogram, |copy| {
                        copy.trim(*factor, TrimSide::Below)
                    })),
                    Operator::TrimLower => Some(changed(histogram, |copy| {
                        copy.trim(*factor, TrimSide::Above)
                    })),
                    _ => self.incompatible("histogram", "float", notes),
                };
            }
            (Point::Float(factor), Point::Histogram(histogram)) => {
                return match self.operator {
                    Operator::Mul => Some(changed(histogram, |copy| copy.multiply(*factor))),
                    _ => self.incompatible("float", "histogram", notes),
                };
            }
        };
        match (self.returns_bool, compared) {
            (true, held) => Some(Point::Float(f64::from(u8::from(held)))),
            (false, true) => Some(left.clone()),
            (false, false) => None,
        }
    }

    fn incompatible(&self, left: &str, right: &str, notes: &mut Annotations) -> Option<Point> {
        let text = annotations::incompatible_types(self.operator.name(), left, right);
        notes.info(self.position, text);
        None
    }

    fn histograms(
        &self,
        left: &FloatHistogram,
        right: &FloatHistogram,
        notes: &mut Annotations,
    ) -> Option<Point> {
        let mut result = left.clone();
        let (done, what) = match self.operator {
            Operator::Add => (result.add(right), "addition"),
            _ => (result.subtract(right), "subtraction"),
        };
        match done {
            Err(Incompatible) => {
                let operator = self.operator.name();
                let text = format!(
                    "incompatible bucket layout encountered for binary operator {operator}"
                );
                notes.warn(self.position, text);
                return None;
            }
            Ok(HistogramConflicts {
                bounds,
                reset_collision,
            }) => {
                if bounds {
                    notes.info(self.position, annotations::bounds_reconciled(what));
                }
                if reset_collision {
                    notes.warn(self.position, annotations::reset_collision(what));
                }
            }
        }
        Some(Point::Histogram(result.into()))
    }

    /// An operator between series and a scalar, which stands on the left when `swapped`.
    pub(super) fn with_scalar(
        &self,
        mut series: Vec<LabeledRow>,
        scalars: &[f64],
        swapped: bool,
        notes: &mut Annotations,
    ) -> Vec<LabeledRow> {
        let of_floats = self.of_floats();
        let keeps_sample = self.operator.is_comparison() && !self.returns_bool;
        for one in &mut series {
            one.drop_name |= self.drops_name() || self.returns_bool;
            if one.row.histograms.is_empty() && !self.operator.is_trim() {
                for (value, scalar) in one.row.values.iter_mut().zip(scalars) {
                    if is_stale(*value) {
                        continue;
                    }
                    let result = if swapped {
                        of_floats(*scalar, *value)
                    } else {
                        of_floats(*value, *scalar)
                    };
                    // A comparison that holds keeps the series' sample, on whichever side it
                    // stands.
                    if !keeps_sample || is_stale(result) {
                        *value = result;
                    }
                }
                continue;
            }
            one.row.map(|step, point| {
                let scalar = Point::Float(scalars[step]);
                let result = if swapped {
                    self.points(&scalar, &point, notes)
                } else {
                    self.points(&point, &scalar, notes)
                };
                if keeps_sample {
                    result.map(|_| point)
                } else {
                    result
                }
            });
        }
        series.retain(|one| !one.row.is_empty());
        series
    }
}

fn changed(histogram: &FloatHistogram, change: impl FnOnce(&mut FloatHistogram)) -> Point {
    let mut copy = histogram.clone();
    change(&mut copy);
    Point::Histogram(copy.into())
}
