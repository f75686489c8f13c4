//! Values for parameters, drawn from declared distributions.

use std::fmt::Write;

use rand::RngExt;
use rand::distr::Distribution as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{StandardNormal, Zipf};
use serde::Deserialize;

use super::expression::{Expression, Variables};

/// Numbers beyond this are not exact in the arithmetic of expressions.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// How a parameter's values are distributed, as a workload file says it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Distribution {
    /// Always the same value.
    Constant(Expression),
    /// Every value with equal probability.
    Uniform {
        /// The smallest value drawn.
        min: Expression,
        /// The largest value drawn.
        max: Expression,
        /// Digits behind the point.
        #[serde(default)]
        decimals: u8,
    },
    /// The k-th value with a chance proportional to 1/k^skew.
    Zipf {
        /// The smallest and most frequent value.
        min: Expression,
        /// The largest and rarest value.
        max: Expression,
        /// How uneven: above 0; 1 is Zipf's law.
        skew: Expression,
    },
    /// A bell, cut off at both ends; as pgbench's `random_gaussian`.
    #[serde(alias = "normal")]
    Gaussian {
        /// The smallest value drawn.
        min: Expression,
        /// The largest value drawn.
        max: Expression,
        /// From the middle to an end in standard deviations: at least 2.
        parameter: Expression,
    },
    /// Falling from the smallest value on; as pgbench's `random_exponential`.
    Exponential {
        /// The smallest and most frequent value.
        min: Expression,
        /// The largest and rarest value.
        max: Expression,
        /// How steep: above 0.
        parameter: Expression,
    },
    /// Each value once in a measurement: the operation's number times `step`, from `start` on.
    Sequence {
        /// Value of the first operation.
        start: Expression,
        /// From one to the next.
        #[serde(default = "one")]
        step: Expression,
    },
    /// One of a list.
    Choice {
        /// Values of the list.
        values: Vec<toml::Value>,
        /// How often each, in proportion; all alike where missing.
        #[serde(default)]
        weights: Vec<f64>,
    },
}

fn one() -> Expression {
    Expression::Number(1.0)
}

/// A distribution with its numbers known.
#[derive(Clone, Debug)]
pub enum Draw {
    Constant(String),
    Integers { min: i64, max: i64, shape: IntegerDistribution },
    Decimals { min: f64, max: f64, decimals: usize },
    Sequence { start: i64, step: i64 },
    Choice { values: Vec<String>, weights: Weights },
}

/// How integers between two bounds are distributed.
#[derive(Clone, Debug)]
pub enum IntegerDistribution {
    Uniform,
    Zipf(Zipf<f64>),
    Gaussian { parameter: f64 },
    Exponential { parameter: f64 },
}

/// Draws an index in proportion to weights.
#[derive(Clone, Debug)]
pub struct Weights {
    cumulative: Vec<f64>,
}

impl Weights {
    /// Takes the weights.
    ///
    /// # Errors
    /// When one is negative or none is positive.
    pub fn new(weights: &[f64]) -> Result<Self, String> {
        let mut sum = 0.0;
        let mut cumulative = Vec::with_capacity(weights.len());
        for weight in weights {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(format!("weight {weight} is not a number from 0 on"));
            }
            sum += weight;
            cumulative.push(sum);
        }
        if sum > 0.0 && sum.is_finite() {
            return Ok(Self { cumulative });
        }
        Err("no weight is above 0".to_owned())
    }

    /// Draws an index with a probability proportional to its weight.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> usize {
        let sum = self.cumulative.last().copied().unwrap_or(1.0);
        let position = random.random::<f64>() * sum;
        let index = self.cumulative.partition_point(|upper| *upper <= position);
        index.min(self.cumulative.len() - 1)
    }
}

impl Distribution {
    /// With the values of variables.
    ///
    /// # Errors
    /// What cannot be.
    pub(crate) fn resolve(&self, variables: &Variables) -> Result<Draw, String> {
        let value = |expression: &Expression| expression.evaluate(variables);
        let bounds = |min: &Expression, max: &Expression| {
            let (min, max) = (value(min)?, value(max)?);
            if min > max {
                return Err(format!("min {min} is above max {max}"));
            }
            Ok((to_integer(min)?, to_integer(max)?))
        };
        let to_integers = |min, max, shape| {
            let (min, max) = bounds(min, max)?;
            Ok(Draw::Integers { min, max, shape })
        };
        match self {
            Self::Constant(expression) => Ok(Draw::Constant(value(expression)?.to_string())),
            Self::Uniform { min, max, decimals: 0 } => {
                to_integers(min, max, IntegerDistribution::Uniform)
            }
            Self::Uniform { min, max, decimals } => {
                let (min, max) = (value(min)?, value(max)?);
                if min > max || *decimals > 15 {
                    return Err(format!(
                        "from {min} to {max} with {decimals} decimals is not a range"
                    ));
                }
                Ok(Draw::Decimals { min, max, decimals: usize::from(*decimals) })
            }
            Self::Zipf { min, max, skew } => {
                let (low, high) = bounds(min, max)?;
                let skew = ensure_at_least(value(skew)?, 0.0, "skew")?;
                let count = (high as f64) - (low as f64) + 1.0;
                let zipf = Zipf::new(count, skew).map_err(|error| error.to_string())?;
                to_integers(min, max, IntegerDistribution::Zipf(zipf))
            }
            Self::Gaussian { min, max, parameter } => {
                let parameter = ensure_at_least(value(parameter)?, 2.0, "parameter")?;
                to_integers(min, max, IntegerDistribution::Gaussian { parameter })
            }
            Self::Exponential { min, max, parameter } => {
                let parameter = ensure_at_least(value(parameter)?, f64::MIN_POSITIVE, "parameter")?;
                to_integers(min, max, IntegerDistribution::Exponential { parameter })
            }
            Self::Sequence { start, step } => Ok(Draw::Sequence {
                start: to_integer(value(start)?)?,
                step: to_integer(value(step)?)?,
            }),
            Self::Choice { values, weights } => resolve_choice(values, weights),
        }
    }

    /// The expressions in it.
    pub(crate) fn expressions(&self) -> Vec<&Expression> {
        match self {
            Self::Constant(expression) => vec![expression],
            Self::Uniform { min, max, .. } => vec![min, max],
            Self::Zipf { min, max, skew: third }
            | Self::Gaussian { min, max, parameter: third }
            | Self::Exponential { min, max, parameter: third } => vec![min, max, third],
            Self::Sequence { start, step } => vec![start, step],
            Self::Choice { .. } => Vec::new(),
        }
    }
}

fn resolve_choice(values: &[toml::Value], weights: &[f64]) -> Result<Draw, String> {
    if values.is_empty() {
        return Err("there are no values to choose from".to_owned());
    }
    let equal = vec![1.0; values.len()];
    let weights = if weights.is_empty() { &equal } else { weights };
    if weights.len() != values.len() {
        return Err(format!("{} values have {} weights", values.len(), weights.len()));
    }
    let texts = values.iter().map(|value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        _ => Err("a value is a text, a number, true or false".to_owned()),
    });
    Ok(Draw::Choice { values: texts.collect::<Result<_, _>>()?, weights: Weights::new(weights)? })
}

fn ensure_at_least(value: f64, minimum: f64, name: &str) -> Result<f64, String> {
    if value >= minimum {
        return Ok(value);
    }
    Err(format!("{name} {value} is below {minimum}"))
}

fn to_integer(value: f64) -> Result<i64, String> {
    if value.abs() > EXACT_MAX {
        return Err(format!("{value} is beyond 2^53"));
    }
    Ok(value.round() as i64)
}

impl Draw {
    /// Writes a value, as PostgreSQL reads it, in place of what `text` holds. `number` is the
    /// operation's, which no other one of the measurement has.
    pub fn write_value(&self, number: u64, random: &mut Xoshiro256PlusPlus, text: &mut String) {
        text.clear();
        let result = match self {
            Self::Constant(value) => text.write_str(value),
            Self::Integers { min, max, shape } => {
                write!(text, "{}", shape.draw(*min, *max, random))
            }
            Self::Decimals { min, max, decimals } => {
                let value = min + (max - min) * random.random::<f64>();
                write!(text, "{value:.decimals$}")
            }
            Self::Sequence { start, step } => {
                let offset = (number as i64).wrapping_mul(*step);
                write!(text, "{}", start.wrapping_add(offset))
            }
            Self::Choice { values, weights } => text.write_str(&values[weights.draw(random)]),
        };
        result.expect("a string takes what is written to it");
    }
}

impl IntegerDistribution {
    fn draw(&self, min: i64, max: i64, random: &mut Xoshiro256PlusPlus) -> i64 {
        // Of the range, where 1 itself does not occur.
        let share = match self {
            Self::Uniform => return random.random_range(min..=max),
            Self::Zipf(zipf) => return (min - 1 + zipf.sample(random) as i64).clamp(min, max),
            Self::Gaussian { parameter } => loop {
                let deviation: f64 = StandardNormal.sample(random);
                if deviation >= -parameter && deviation < *parameter {
                    break (deviation + parameter) / (2.0 * parameter);
                }
            },
            Self::Exponential { parameter } => {
                let cut = (-parameter).exp();
                let uniform = 1.0 - random.random::<f64>();
                -(cut + (1.0 - cut) * uniform).ln() / parameter
            }
        };
        let count = (max as f64) - (min as f64) + 1.0;
        (min + (count * share) as i64).min(max)
    }
}
