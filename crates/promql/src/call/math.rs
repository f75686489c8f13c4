//! Functions that make one sample of one sample.

use egret_metrics_model::Labels;

use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::histogram::FloatHistogram;
use super::super::row::{Grid, LabeledRow, Point, Row};
use super::super::syntax::Call;
use super::{time, unknown_function};

pub(super) type UnaryMathFn = fn(f64, &[f64; 2]) -> Option<f64>;
type HistogramMathFn = fn(&FloatHistogram) -> f64;

impl EvalContext<'_> {
    pub(super) fn call_sample_function(
        &self,
        call: &Call,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let name = call.name();
        if let Some(function) = find_histogram_function(name) {
            return self.map_first_argument(call, grid, |_, point| match point {
                Point::Histogram(histogram) => Some(function(&histogram)),
                Point::Float(_) => None,
            });
        }
        let function = find_math_function(name)
            .or_else(|| time::lookup(name))
            .ok_or_else(|| unknown_function(name))?;
        let scalars: Vec<Vec<f64>> = call
            .arguments
            .iter()
            .skip(1)
            .map(|argument| self.eval_scalar(argument, grid))
            .collect::<Result<_, _>>()?;
        let default = if name == "round" { 1.0 } else { f64::NAN };
        let argument =
            |index: usize, step: usize| scalars.get(index).map_or(default, |values| values[step]);
        self.map_first_argument(call, grid, |step, point| match point {
            Point::Float(value) => function(value, &[argument(0, step), argument(1, step)]),
            Point::Histogram(_) => None,
        })
    }

    /// Maps the samples of the first argument; without one, the time.
    fn map_first_argument(
        &self,
        call: &Call,
        grid: Grid,
        change: impl Fn(usize, Point) -> Option<f64>,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let mut series = match call.arguments.first() {
            Some(argument) => self.eval_vector(argument, grid)?,
            None => vec![LabeledRow {
                labels: Labels::default(),
                drop_name: false,
                row: Row {
                    values: (0..grid.count).map(|step| grid.time(step) as f64 / 1000.0).collect(),
                    histograms: Vec::new(),
                },
            }],
        };
        for series_row in &mut series {
            series_row.drop_name = true;
            series_row.row.map(|step, point| change(step, point).map(Point::Float));
        }
        series.retain(|one| !one.row.is_empty());
        Ok(series)
    }
}

fn find_histogram_function(name: &str) -> Option<HistogramMathFn> {
    Some(match name {
        "histogram_count" => |histogram| histogram.count,
        "histogram_sum" => |histogram| histogram.sum,
        "histogram_avg" => |histogram| histogram.sum / histogram.count,
        "histogram_stdvar" => FloatHistogram::variance,
        "histogram_stddev" => |histogram| histogram.variance().sqrt(),
        _ => return None,
    })
}

fn find_math_function(name: &str) -> Option<UnaryMathFn> {
    Some(match name {
        "abs" => |value, _| Some(value.abs()),
        "ceil" => |value, _| Some(value.ceil()),
        "floor" => |value, _| Some(value.floor()),
        "exp" => |value, _| Some(value.exp()),
        "sqrt" => |value, _| Some(value.sqrt()),
        "ln" => |value, _| Some(value.ln()),
        "log2" => |value, _| Some(value.log2()),
        "log10" => |value, _| Some(value.log10()),
        "sin" => |value, _| Some(value.sin()),
        "cos" => |value, _| Some(value.cos()),
        "tan" => |value, _| Some(value.tan()),
        "asin" => |value, _| Some(value.asin()),
        "acos" => |value, _| Some(value.acos()),
        "atan" => |value, _| Some(value.atan()),
        "sinh" => |value, _| Some(value.sinh()),
        "cosh" => |value, _| Some(value.cosh()),
        "tanh" => |value, _| Some(value.tanh()),
        "asinh" => |value, _| Some(asinh(value)),
        "acosh" => |value, _| Some(acosh(value)),
        "atanh" => |value, _| Some(value.atanh()),
        "deg" => |value, _| Some(value * 180.0 / std::f64::consts::PI),
        "rad" => |value, _| Some(value * std::f64::consts::PI / 180.0),
        "sgn" => |value, _| Some(sign(value)),
        "round" => |value, arguments| Some(round(value, arguments[0])),
        "clamp" => |value, [low, high]| {
            (low <= high || low.is_nan() || high.is_nan()).then(|| clamp(value, *low, *high))
        },
        "clamp_min" => |value, [low, _]| Some(clamp(value, *low, f64::INFINITY)),
        "clamp_max" => |value, [high, _]| Some(clamp(value, f64::NEG_INFINITY, *high)),
        _ => return None,
    })
}

/// From here on the square of a number swallows 1.
const ASYMPTOTIC_MIN: f64 = (1_u64 << 28) as f64;

fn asinh(value: f64) -> f64 {
    if value.abs() > ASYMPTOTIC_MIN {
        (value.abs().ln() + std::f64::consts::LN_2).copysign(value)
    } else {
        value.asinh()
    }
}

fn acosh(value: f64) -> f64 {
    if value > ASYMPTOTIC_MIN { value.ln() + std::f64::consts::LN_2 } else { value.acosh() }
}

fn sign(value: f64) -> f64 {
    match value.partial_cmp(&0.0) {
        Some(std::cmp::Ordering::Less) => -1.0,
        Some(std::cmp::Ordering::Greater) => 1.0,
        _ => value,
    }
}

/// To the nearest multiple, halves upward. The inverse is used, as 0.1 has no exact representation
/// and 10 has.
fn round(value: f64, multiple: f64) -> f64 {
    let inverse = 1.0 / multiple;
    (value * inverse + 0.5).floor() / inverse
}

fn clamp(value: f64, low: f64, high: f64) -> f64 {
    max_of(low, min_of(high, value))
}

/// The greater of two: NaN if either is, but nothing is greater than infinity, and zero is greater
/// than its negative.
pub(super) fn max_of(left: f64, right: f64) -> f64 {
    if left == f64::INFINITY || right == f64::INFINITY {
        f64::INFINITY
    } else if left.is_nan() || right.is_nan() {
        f64::NAN
    } else if left > right || left == right && right.is_sign_negative() {
        left
    } else {
        right
    }
}

/// The less of two, likewise.
pub(super) fn min_of(left: f64, right: f64) -> f64 {
    -max_of(-left, -right)
}
