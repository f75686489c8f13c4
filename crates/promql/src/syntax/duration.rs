//! Lengths of time as queries write them: `5m`, `300`, and sums such as `step() * 2 + 1m`.

use super::{Operator, print};
use crate::error::QueryError;
use crate::number;

/// Times and durations are cut here, in milliseconds, so that sums of a few of them can be
/// represented.
pub(crate) const TIME_MAX: i64 = i64::MAX / 16;

/// A length of time. What is computed from the query's own step and range is known only when it is
/// evaluated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DurationExpr {
    /// In milliseconds; of a sum, 0 until the query is evaluated.
    pub ms: i64,
    /// The sum, where it is one.
    pub expression: Option<Box<Duration>>,
}

/// A part of a sum. Numbers are seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Duration {
    Literal {
        seconds: f64,
        has_unit: bool,
    },
    Step,
    Range,
    Paren(Box<Duration>),
    Negation(Box<Duration>),
    Binary(Operator, Box<Duration>, Box<Duration>),
    /// The less of two; the greater.
    Min(Box<Duration>, Box<Duration>),
    Max(Box<Duration>, Box<Duration>),
}

/// The step of a query, and from its start to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuerySpan {
    pub step_ms: i64,
    pub range_ms: i64,
}

impl DurationExpr {
    pub(super) fn from_duration(duration: Duration) -> Self {
        match duration {
            Duration::Literal { seconds, .. } => Self { ms: to_millis(seconds), expression: None },
            sum => Self { ms: 0, expression: Some(Box::new(sum)) },
        }
    }

    /// Computes the sum.
    ///
    /// # Errors
    /// When it has no value, or one of no use: an offset may be negative, others may not be zero
    /// either.
    pub(crate) fn resolve(
        &mut self,
        span: QuerySpan,
        may_be_negative: bool,
    ) -> Result<(), QueryError> {
        if let Some(sum) = &self.expression {
            let seconds = sum.evaluate_seconds(span)?;
            if seconds.is_nan() || seconds.abs() * 1000.0 >= TIME_MAX as f64 {
                return Err(new_parse_error("duration is out of range"));
            }
            if !may_be_negative && seconds <= 0.0 {
                return Err(new_parse_error("duration must be greater than 0"));
            }
            self.ms = to_millis(seconds);
        }
        Ok(())
    }

    /// The duration as Prometheus prints it.
    pub(super) fn to_text(&self) -> String {
        match &self.expression {
            Some(sum) => sum.to_text(),
            None if self.ms < 0 => format!("-{}", number::format_duration(-self.ms)),
            None => number::format_duration(self.ms),
        }
    }
}

/// A length of time that a query cannot have is a mistake in its text.
fn new_parse_error(message: &str) -> QueryError {
    let message = message.to_owned();
    QueryError::Parse { message }
}

/// Whole milliseconds, the rest cut as Prometheus cuts it.
pub(super) fn to_millis(seconds: f64) -> i64 {
    // 0.001 has no exact representation: a thousandth that is just below is meant.
    let ms = seconds * 1000.0;
    let nearest = ms.round();
    let whole = if (ms - nearest).abs() < 1e-6 { nearest } else { ms.trunc() };
    (whole as i64).clamp(-TIME_MAX, TIME_MAX)
}

impl Duration {
    fn evaluate_seconds(&self, span: QuerySpan) -> Result<f64, QueryError> {
        Ok(match self {
            Self::Literal { seconds, .. } => *seconds,
            Self::Step => span.step_ms as f64 / 1000.0,
            Self::Range => span.range_ms as f64 / 1000.0,
            Self::Paren(inner) => inner.evaluate_seconds(span)?,
            Self::Negation(inner) => -inner.evaluate_seconds(span)?,
            Self::Min(left, right) => {
                left.evaluate_seconds(span)?.min(right.evaluate_seconds(span)?)
            }
            Self::Max(left, right) => {
                left.evaluate_seconds(span)?.max(right.evaluate_seconds(span)?)
            }
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.evaluate_seconds(span)?, right.evaluate_seconds(span)?);
                match operator {
                    Operator::Add => left + right,
                    Operator::Sub => left - right,
                    Operator::Mul => left * right,
                    Operator::Pow => left.powf(right),
                    Operator::Div if right == 0.0 => {
                        return Err(new_parse_error("division by zero"));
                    }
                    Operator::Mod if right == 0.0 => {
                        return Err(new_parse_error("modulo by zero"));
                    }
                    Operator::Div => left / right,
                    _ => left % right,
                }
            }
        })
    }

    fn to_text(&self) -> String {
        match self {
            Self::Literal { seconds, has_unit } => print::format_literal(*seconds, *has_unit),
            Self::Step => "step()".to_owned(),
            Self::Range => "range()".to_owned(),
            Self::Paren(inner) => format!("({})", inner.to_text()),
            Self::Negation(inner) => format!("-{}", inner.to_text()),
            Self::Min(left, right) => format!("min_of({}, {})", left.to_text(), right.to_text()),
            Self::Max(left, right) => format!("max_of({}, {})", left.to_text(), right.to_text()),
            Self::Binary(operator, left, right) => {
                format!("{} {} {}", left.to_text(), operator.name(), right.to_text())
            }
        }
    }
}
