//! Which functions there are, what they take and what they yield.

use super::ValueType;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FunctionSignature {
    pub name: &'static str,
    /// Of further arguments, the last kind.
    pub arguments: &'static [ValueType],
    /// How many arguments may be left out or come besides: 0 none, −1 any number may come.
    pub variadic: i32,
    pub yields: ValueType,
}

impl FunctionSignature {
    /// How many arguments there may be: at least, and at most.
    pub(super) fn arity(&self) -> (usize, usize) {
        let listed = self.arguments.len();
        match self.variadic {
            0 => (listed, listed),
            more => {
                let least = listed - 1;
                let most = usize::try_from(more).map_or(usize::MAX, |more| least + more);
                (least, most)
            }
        }
    }
}

/// The function of this name.
pub(super) fn lookup(name: &str) -> Option<&'static FunctionSignature> {
    let found = FUNCTIONS.binary_search_by(|function| function.name.cmp(name));
    found.ok().map(|at| &FUNCTIONS[at])
}

use ValueType::{Matrix as M, Scalar as S, Text as T, Vector as V};

const fn of(
    name: &'static str,
    arguments: &'static [ValueType],
    variadic: i32,
    yields: ValueType,
) -> FunctionSignature {
    FunctionSignature {
        name,
        arguments,
        variadic,
        yields,
    }
}

static FUNCTIONS: [FunctionSignature; 91] = [
    of("abs", &[V], 0, V),
    of("absent", &[V], 0, V),
    of("absent_over_time", &[M], 0, V),
    of("acos", &[V], 0, V),
    of("acosh", &[V], 0, V),
    of("asin", &[V], 0, V),
    of("asinh", &[V], 0, V),
    of("atan", &[V], 0, V),
    of("atanh", &[V], 0, V),
    of("avg_over_time", &[M], 0, V),
    of("ceil", &[V], 0, V),
    of("changes", &[M], 0, V),
    of("clamp", &[V, S, S], 0, V),
    of("clamp_max", &[V, S], 0, V),
    of("clamp_min", &[V, S], 0, V),
    of("cos", &[V], 0, V),
    of("cosh", &[V], 0, V),
    of("count_over_time", &[M], 0, V),
    of("day_of_month", &[V], 1, V),
    of("day_of_week", &[V], 1, V),
    of("day_of_year", &[V], 1, V),
    of("days_in_month", &[V], 1, V),
    of("deg", &[V], 0, V),
    of("delta", &[M], 0, V),
    of("deriv", &[M], 0, V),
    of("double_exponential_smoothing", &[M, S, S], 0, V),
    of("end", &[], 0, S),
    of("exp", &[V], 0, V),
    of("first_over_time", &[M], 0, V),
    of("floor", &[V], 0, V),
    of("histogram_avg", &[V], 0, V),
    of("histogram_count", &[V], 0, V),
    of("histogram_fraction", &[S, S, V], 0, V),
    of("histogram_quantile", &[S, V], 0, V),
    of("histogram_quantiles", &[V, T, S, S], 9, V),
    of("histogram_stddev", &[V], 0, V),
    of("histogram_stdvar", &[V], 0, V),
    of("histogram_sum", &[V], 0, V),
    of("holt_winters", &[M, S, S], 0, V),
    of("hour", &[V], 1, V),
    of("idelta", &[M], 0, V),
    of("increase", &[M], 0, V),
    of("info", &[V, V], 1, V),
    of("irate", &[M], 0, V),
    of("label_join", &[V, T, T, T], -1, V),
    of("label_replace", &[V, T, T, T, T], 0, V),
    of("last_over_time", &[M], 0, V),
    of("ln", &[V], 0, V),
    of("log10", &[V], 0, V),
    of("log2", &[V], 0, V),
    of("mad_over_time", &[M], 0, V),
    of("max_of", &[S, S], 0, S),
    of("max_over_time", &[M], 0, V),
    of("min_of", &[S, S], 0, S),
    of("min_over_time", &[M], 0, V),
    of("minute", &[V], 1, V),
    of("month", &[V], 1, V),
    of("pi", &[], 0, S),
    of("predict_linear", &[M, S], 0, V),
    of("present_over_time", &[M], 0, V),
    of("quantile_over_time", &[S, M], 0, V),
    of("rad", &[V], 0, V),
    of("range", &[], 0, S),
    of("rate", &[M], 0, V),
    of("resets", &[M], 0, V),
    of("round", &[V, S], 1, V),
    of("scalar", &[V], 0, S),
    of("sgn", &[V], 0, V),
    of("sin", &[V], 0, V),
    of("sinh", &[V], 0, V),
    of("sort", &[V], 0, V),
    of("sort_by_label", &[V, T], -1, V),
    of("sort_by_label_desc", &[V, T], -1, V),
    of("sort_desc", &[V], 0, V),
    of("sqrt", &[V], 0, V),
    of("start", &[], 0, S),
    of("start_timestamp", &[V], 0, V),
    of("stddev_over_time", &[M], 0, V),
    of("stdvar_over_time", &[M], 0, V),
    of("step", &[], 0, S),
    of("sum_over_time", &[M], 0, V),
    of("tan", &[V], 0, V),
    of("tanh", &[V], 0, V),
    of("time", &[], 0, S),
    of("timestamp", &[V], 0, V),
    of("ts_of_first_over_time", &[M], 0, V),
    of("ts_of_last_over_time", &[M], 0, V),
    of("ts_of_max_over_time", &[M], 0, V),
    of("ts_of_min_over_time", &[M], 0, V),
    of("vector", &[S], 0, V),
    of("year", &[V], 1, V),
];
