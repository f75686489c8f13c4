//! Which functions there are, what they take and what they yield.

use super::ValueType;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FunctionSignature {
    pub name: &'static str,
    /// Of further arguments, the last kind.
    pub arguments: &'static [ValueType],
    /// How many arguments may be left out or come besides: 0 none, −1 any number may come.
    pub variadic: i32,
    pub return_type: ValueType,
}

impl FunctionSignature {
    /// How many arguments there may be: at least, and at most.
    pub(super) fn arity(&self) -> (usize, usize) {
        let listed_count = self.arguments.len();
        match self.variadic {
            0 => (listed_count, listed_count),
            more => {
                let count_min = listed_count - 1;
                let count_max = usize::try_from(more).map_or(usize::MAX, |more| count_min + more);
                (count_min, count_max)
            }
        }
    }
}

/// The function of this name.
pub(super) fn lookup(name: &str) -> Option<&'static FunctionSignature> {
    let result = FUNCTIONS.binary_search_by(|function| function.name.cmp(name));
    result.ok().map(|at| &FUNCTIONS[at])
}

use ValueType::{Matrix as M, Scalar as S, Text as T, Vector as V};

const fn signature(
    name: &'static str,
    arguments: &'static [ValueType],
    variadic: i32,
    return_type: ValueType,
) -> FunctionSignature {
    FunctionSignature { name, arguments, variadic, return_type }
}

static FUNCTIONS: [FunctionSignature; 91] = [
    signature("abs", &[V], 0, V),
    signature("absent", &[V], 0, V),
    signature("absent_over_time", &[M], 0, V),
    signature("acos", &[V], 0, V),
    signature("acosh", &[V], 0, V),
    signature("asin", &[V], 0, V),
    signature("asinh", &[V], 0, V),
    signature("atan", &[V], 0, V),
    signature("atanh", &[V], 0, V),
    signature("avg_over_time", &[M], 0, V),
    signature("ceil", &[V], 0, V),
    signature("changes", &[M], 0, V),
    signature("clamp", &[V, S, S], 0, V),
    signature("clamp_max", &[V, S], 0, V),
    signature("clamp_min", &[V, S], 0, V),
    signature("cos", &[V], 0, V),
    signature("cosh", &[V], 0, V),
    signature("count_over_time", &[M], 0, V),
    signature("day_of_month", &[V], 1, V),
    signature("day_of_week", &[V], 1, V),
    signature("day_of_year", &[V], 1, V),
    signature("days_in_month", &[V], 1, V),
    signature("deg", &[V], 0, V),
    signature("delta", &[M], 0, V),
    signature("deriv", &[M], 0, V),
    signature("double_exponential_smoothing", &[M, S, S], 0, V),
    signature("end", &[], 0, S),
    signature("exp", &[V], 0, V),
    signature("first_over_time", &[M], 0, V),
    signature("floor", &[V], 0, V),
    signature("histogram_avg", &[V], 0, V),
    signature("histogram_count", &[V], 0, V),
    signature("histogram_fraction", &[S, S, V], 0, V),
    signature("histogram_quantile", &[S, V], 0, V),
    signature("histogram_quantiles", &[V, T, S, S], 9, V),
    signature("histogram_stddev", &[V], 0, V),
    signature("histogram_stdvar", &[V], 0, V),
    signature("histogram_sum", &[V], 0, V),
    signature("holt_winters", &[M, S, S], 0, V),
    signature("hour", &[V], 1, V),
    signature("idelta", &[M], 0, V),
    signature("increase", &[M], 0, V),
    signature("info", &[V, V], 1, V),
    signature("irate", &[M], 0, V),
    signature("label_join", &[V, T, T, T], -1, V),
    signature("label_replace", &[V, T, T, T, T], 0, V),
    signature("last_over_time", &[M], 0, V),
    signature("ln", &[V], 0, V),
    signature("log10", &[V], 0, V),
    signature("log2", &[V], 0, V),
    signature("mad_over_time", &[M], 0, V),
    signature("max_of", &[S, S], 0, S),
    signature("max_over_time", &[M], 0, V),
    signature("min_of", &[S, S], 0, S),
    signature("min_over_time", &[M], 0, V),
    signature("minute", &[V], 1, V),
    signature("month", &[V], 1, V),
    signature("pi", &[], 0, S),
    signature("predict_linear", &[M, S], 0, V),
    signature("present_over_time", &[M], 0, V),
    signature("quantile_over_time", &[S, M], 0, V),
    signature("rad", &[V], 0, V),
    signature("range", &[], 0, S),
    signature("rate", &[M], 0, V),
    signature("resets", &[M], 0, V),
    signature("round", &[V, S], 1, V),
    signature("scalar", &[V], 0, S),
    signature("sgn", &[V], 0, V),
    signature("sin", &[V], 0, V),
    signature("sinh", &[V], 0, V),
    signature("sort", &[V], 0, V),
    signature("sort_by_label", &[V, T], -1, V),
    signature("sort_by_label_desc", &[V, T], -1, V),
    signature("sort_desc", &[V], 0, V),
    signature("sqrt", &[V], 0, V),
    signature("start", &[], 0, S),
    signature("start_timestamp", &[V], 0, V),
    signature("stddev_over_time", &[M], 0, V),
    signature("stdvar_over_time", &[M], 0, V),
    signature("step", &[], 0, S),
    signature("sum_over_time", &[M], 0, V),
    signature("tan", &[V], 0, V),
    signature("tanh", &[V], 0, V),
    signature("time", &[], 0, S),
    signature("timestamp", &[V], 0, V),
    signature("ts_of_first_over_time", &[M], 0, V),
    signature("ts_of_last_over_time", &[M], 0, V),
    signature("ts_of_max_over_time", &[M], 0, V),
    signature("ts_of_min_over_time", &[M], 0, V),
    signature("vector", &[S], 0, V),
    signature("year", &[V], 1, V),
];
