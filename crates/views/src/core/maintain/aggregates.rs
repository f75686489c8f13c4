//! How aggregates are maintained by changes, and the columns that are stored for that.

use std::collections::BTreeSet;

use crate::core::column_types::ColumnType;
use crate::core::expression::{ColumnId, Names, stage_column_name};
use crate::core::scales::SCALE_MAX;
use crate::core::sql::WEIGHT;
use crate::core::tree::Aggregate;

/// How an aggregate is maintained by changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AggregateMaintenance {
    /// A number of rows, or of values that are not null.
    Count,
    /// A sum of the argument's values.
    Sum(SumTerms),
    /// An average, from a sum and a count.
    Average(SumTerms),
    /// The least or the greatest value.
    Extremum(Extremum),
    /// Whether any value is true, or all are.
    Boolean {
        /// Whether all values must be true.
        is_all: bool,
    },
    /// Not by changes: the group is recomputed.
    Recomputed,
}

/// The least or the greatest of the values of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremum {
    /// The least value, by `min`.
    Least,
    /// The greatest value, by `max`.
    Greatest,
}

impl Extremum {
    /// Name of the aggregate function that computes it.
    pub fn function(self) -> &'static str {
        match self {
            Self::Least => "min",
            Self::Greatest => "max",
        }
    }

    /// The more extreme one of two values; nulls are ignored.
    pub(crate) fn more_extreme(self, left: &str, right: &str) -> String {
        match self {
            Self::Least => format!("least({left}, {right})"),
            Self::Greatest => format!("greatest({left}, {right})"),
        }
    }

    /// Condition that a value is at least as extreme as another.
    pub(crate) fn is_at_least_as_extreme(self, left: &str, right: &str) -> String {
        match self {
            Self::Least => format!("{left} <= {right}"),
            Self::Greatest => format!("{left} >= {right}"),
        }
    }
}

/// Column with the extremum of the values that were added.
pub(crate) fn added_extremum_column(id: ColumnId) -> String {
    format!("egret_came{}", id.0)
}

/// Column with the extremum of the values that were removed.
pub(crate) fn removed_extremum_column(id: ColumnId) -> String {
    format!("egret_went{}", id.0)
}

/// Types whose extrema can be maintained: the order is total, and equal values look the same.
const ORDERED_TYPES: [&str; 9] = [
    "smallint",
    "integer",
    "bigint",
    "text",
    "date",
    "timestamp without time zone",
    "timestamp with time zone",
    "time without time zone",
    "uuid",
];

impl AggregateMaintenance {
    /// Columns to which changes are added, with their types.
    pub fn columns(&self, id: ColumnId) -> Vec<(String, &'static str)> {
        match self {
            Self::Count => vec![(stage_column_name(id), "bigint")],
            Self::Sum(terms) | Self::Average(terms) => SumColumns::new(id, *terms).columns(),
            Self::Boolean { .. } => truth_columns(id).map(|name| (name, "bigint")).into(),
            Self::Extremum(_) | Self::Recomputed => Vec::new(),
        }
    }

    /// Aggregates over the rows, whose argument is `value`, column by column.
    pub(crate) fn row_aggregates(
        &self,
        id: ColumnId,
        value: &str,
        multiplicity: RowMultiplicity,
    ) -> Vec<String> {
        match self {
            Self::Count => vec![multiplicity.count_non_null(value)],
            Self::Sum(terms) | Self::Average(terms) => {
                SumColumns::new(id, *terms).row_aggregates(value, multiplicity)
            }
            Self::Boolean { .. } => vec![
                multiplicity.count_where(value),
                multiplicity.count_where(&format!("NOT {value}")),
            ],
            Self::Extremum(_) | Self::Recomputed => Vec::new(),
        }
    }

    /// The result, from columns of `row`, if it is computed from these.
    pub(crate) fn result_sql(&self, id: ColumnId, row: &str) -> Option<String> {
        match self {
            Self::Sum(terms) => {
                let sum_columns = SumColumns::new(id, *terms);
                Some(sum_columns.result_sql(row, &sum_columns.total(row)))
            }
            Self::Average(terms) => {
                let carrier = SumColumns::new(id, *terms);
                let value = format!("{} / {row}.{}", carrier.total(row), carrier.value_count);
                Some(carrier.result_sql(row, &value))
            }
            Self::Boolean { is_all } => {
                let [are_true, are_false] = truth_columns(id);
                let (decisive, fallback) = if *is_all {
                    ((are_false, false), (are_true, true))
                } else {
                    ((are_true, true), (are_false, false))
                };
                Some(format!(
                    "CASE WHEN {row}.{} <> 0 THEN {} WHEN {row}.{} <> 0 THEN {} END",
                    decisive.0, decisive.1, fallback.0, fallback.1
                ))
            }
            Self::Count | Self::Extremum(_) | Self::Recomputed => None,
        }
    }

    /// The extremum that the aggregate is, if it is one.
    pub(crate) fn extremum(&self) -> Option<Extremum> {
        match self {
            Self::Extremum(end) => Some(*end),
            _ => None,
        }
    }
}

/// Whether rows have a weight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowMultiplicity {
    /// Each row is there once.
    Once,
    /// Each row has a weight.
    Weighted,
}

impl RowMultiplicity {
    /// The number of rows, in SQL.
    pub(crate) fn count_rows(self) -> String {
        match self {
            Self::Once => "count(*)".to_owned(),
            Self::Weighted => format!("coalesce(sum({WEIGHT}), 0)::bigint"),
        }
    }

    /// The number of rows that satisfy a condition.
    fn count_where(self, condition: &str) -> String {
        match self {
            Self::Once => format!("count(*) FILTER (WHERE {condition})"),
            Self::Weighted => {
                format!("coalesce(sum({WEIGHT}) FILTER (WHERE {condition}), 0)::bigint")
            }
        }
    }

    /// The number of rows with a value that is not null; the value is 1 or null.
    fn count_non_null(self, value: &str) -> String {
        match self {
            Self::Once => format!("count({value})"),
            Self::Weighted => format!("coalesce(sum({value} * {WEIGHT}), 0)::bigint"),
        }
    }

    /// The sum of a value, in this type.
    fn sum(self, value: &str, kind: &str) -> String {
        match self {
            Self::Once => format!("coalesce(sum({value}), 0)::{kind}"),
            Self::Weighted => format!("coalesce(sum({value} * {WEIGHT}), 0)::{kind}"),
        }
    }
}

/// Names of the columns with the numbers of true and of false values.
fn truth_columns(id: ColumnId) -> [String; 2] {
    [format!("egret_true{}", id.0), format!("egret_false{}", id.0)]
}

/// The kind of numbers that are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumTerms {
    /// Integers, with the type of their sum.
    Integer(&'static str),
    /// Decimal numbers. NaN values are counted instead: a sum with one of them stays NaN for ever.
    Decimal,
    /// Decimal numbers of two scales, the smaller one first. Values with the larger scale are
    /// counted: a sum is printed with that scale while it has one of them.
    TwoScales(u32, u32),
}

/// How an aggregate is maintained, by the types of its result and its argument, and the argument's
/// scales.
pub(crate) fn choose_maintenance(
    aggregate: &Aggregate,
    result_type: &ColumnType,
    argument: Option<&str>,
    scales: Option<&BTreeSet<u32>>,
) -> AggregateMaintenance {
    let extremum_maintenance = |extremum| {
        let kind = result_type.sql.as_str();
        let is_ordered = ORDERED_TYPES.contains(&kind)
            && result_type.is_exact
            && result_type.collation.is_none();
        let has_scale = kind == "numeric" && scales.is_some_and(|all| all.len() == 1);
        if is_ordered || has_scale {
            AggregateMaintenance::Extremum(extremum)
        } else {
            AggregateMaintenance::Recomputed
        }
    };
    let is_sum = match aggregate.function.as_deref() {
        Some("count") => return AggregateMaintenance::Count,
        Some("min") => return extremum_maintenance(Extremum::Least),
        Some("max") => return extremum_maintenance(Extremum::Greatest),
        Some("bool_or") => return AggregateMaintenance::Boolean { is_all: false },
        Some("bool_and" | "every") => return AggregateMaintenance::Boolean { is_all: true },
        Some("sum") => true,
        Some("avg") => false,
        _ => return AggregateMaintenance::Recomputed,
    };
    let terms = match (argument, is_sum) {
        (Some("smallint" | "integer"), true) => SumTerms::Integer("bigint"),
        (Some("smallint" | "integer" | "bigint"), _) => SumTerms::Integer("numeric"),
        // With a declared scale a sum is printed with that scale, whichever values it has.
        (Some(kind), _) if kind.starts_with("numeric(") => SumTerms::Decimal,
        (Some("numeric"), _) => {
            let scales: Vec<u32> = scales.into_iter().flatten().copied().collect();
            match scales[..] {
                // A sum with an infinite value in it stays infinite for ever.
                _ if scales.iter().any(|scale| *scale > SCALE_MAX) => {
                    return AggregateMaintenance::Recomputed;
                }
                [_] => SumTerms::Decimal,
                [less, more] => SumTerms::TwoScales(less, more),
                _ => return AggregateMaintenance::Recomputed,
            }
        }
        _ => return AggregateMaintenance::Recomputed,
    };
    if is_sum { AggregateMaintenance::Sum(terms) } else { AggregateMaintenance::Average(terms) }
}

/// The columns from which a sum is maintained.
pub(crate) struct SumColumns {
    /// Name and type of the column with the sum.
    pub sum: (String, &'static str),
    /// Column with the number of values in the sum.
    pub value_count: String,
    /// Column with the number of NaN values.
    nan_count: Option<String>,
    /// Column with the number of values of the larger scale, and both scales.
    larger_scale_count: Option<(String, u32, u32)>,
}

impl SumColumns {
    /// The columns for an aggregate, by its id.
    pub(crate) fn new(id: ColumnId, terms: SumTerms) -> Self {
        let nan_count = || Some(format!("egret_nan{}", id.0));
        let (kind, nan, longer) = match terms {
            SumTerms::Integer(kind) => (kind, None, None),
            SumTerms::Decimal => ("numeric", nan_count(), None),
            SumTerms::TwoScales(less, more) => {
                let name = format!("egret_longer{}", id.0);
                ("numeric", nan_count(), Some((name, less, more)))
            }
        };
        Self {
            sum: (format!("egret_sum{}", id.0), kind),
            value_count: format!("egret_of{}", id.0),
            nan_count: nan,
            larger_scale_count: longer,
        }
    }

    /// The columns with their types.
    pub(crate) fn columns(&self) -> Vec<(String, &'static str)> {
        let longer = self.larger_scale_count.as_ref().map(|(name, ..)| name);
        let counts = [Some(&self.value_count), self.nan_count.as_ref(), longer];
        let counts = counts.into_iter().flatten().map(|name| (name.clone(), "bigint"));
        [self.sum.clone()].into_iter().chain(counts).collect()
    }

    /// Aggregates over the rows, whose argument is `value`, column by column.
    fn row_aggregates(&self, value: &str, multiplicity: RowMultiplicity) -> Vec<String> {
        let added = match self.nan_count {
            None => value.to_owned(),
            Some(_) => format!("nullif({value}, 'NaN')"),
        };
        let mut aggregates = vec![
            multiplicity.sum(&added, self.sum.1),
            multiplicity.count_where(&format!("{value} IS NOT NULL")),
        ];
        let count_nan = || multiplicity.count_where(&format!("{value} = 'NaN'"));
        aggregates.extend(self.nan_count.iter().map(|_| count_nan()));
        if let Some((_, _, more)) = &self.larger_scale_count {
            aggregates.push(multiplicity.count_where(&format!("scale({value}) = {more}")));
        }
        aggregates
    }

    /// The sum, from columns of `row`.
    pub(crate) fn total(&self, row: &str) -> String {
        let sum = format!("{row}.{}", self.sum.0);
        match &self.larger_scale_count {
            None => sum,
            Some((name, less, more)) => {
                format!("round({sum}, CASE WHEN {row}.{name} <> 0 THEN {more} ELSE {less} END)")
            }
        }
    }

    /// The result, from columns of `row`: `value` is computed from them.
    pub(crate) fn result_sql(&self, row: &str, value: &str) -> String {
        let nan = self.nan_count.iter();
        let nan = nan.map(|nan| format!("WHEN {row}.{nan} <> 0 THEN 'NaN'::numeric "));
        let (nan, of) = (nan.collect::<String>(), &self.value_count);
        format!("CASE {nan}WHEN {row}.{of} <> 0 THEN {value} END")
    }
}

/// SQL of 1 for a row that counts, else null.
pub(crate) fn counted_value(aggregate: &Aggregate, names: &Names) -> String {
    let argument = aggregate.argument.as_ref();
    let conditions: Vec<String> = argument
        .map(|argument| format!("{} IS DISTINCT FROM NULL", argument.to_operand(names)))
        .into_iter()
        .chain(aggregate.filter.as_ref().map(|filter| filter.to_operand(names)))
        .collect();
    if conditions.is_empty() {
        "1".to_owned()
    } else {
        format!("CASE WHEN {} THEN 1 END", conditions.join(" AND "))
    }
}

/// SQL of the argument for a row that counts, else null.
pub(crate) fn summed_value(aggregate: &Aggregate, names: &Names) -> String {
    let argument = aggregate.argument.as_ref();
    let argument = argument.map_or("NULL".to_owned(), |argument| argument.to_sql(names));
    match &aggregate.filter {
        None => argument,
        Some(filter) => format!("CASE WHEN {} THEN {argument} END", filter.to_sql(names)),
    }
}
