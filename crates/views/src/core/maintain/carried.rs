//! How aggregates are carried on by what changed, and what is kept of them for that.

use std::collections::BTreeSet;

use super::ColumnType;
use crate::core::analyse::stage_column;
use crate::core::expression::{ColumnId, Names};
use crate::core::scales::SCALE_MAX;
use crate::core::sql::WEIGHT;
use crate::core::tree::Aggregate;

/// How an aggregate is carried on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// The number of rows, or of values.
    Count,
    /// A sum.
    Sum(Terms),
    /// An average.
    Average(Terms),
    /// The least or the greatest value.
    AtEnd(End),
    /// Whether any value is true, or all are.
    Truth {
        /// All.
        is_all: bool,
    },
    /// By asking again.
    Asked,
}

/// An end of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The least.
    Least,
    /// The greatest.
    Greatest,
}

impl End {
    /// The aggregate that finds it.
    pub fn function(self) -> &'static str {
        match self {
            Self::Least => "min",
            Self::Greatest => "max",
        }
    }

    /// What is further that way of two values; the other one of null.
    pub fn further(self, one: &str, other: &str) -> String {
        match self {
            Self::Least => format!("least({one}, {other})"),
            Self::Greatest => format!("greatest({one}, {other})"),
        }
    }

    /// Whether a value is as far that way as another, or further.
    pub fn is_at_end(self, one: &str, other: &str) -> String {
        match self {
            Self::Least => format!("{one} <= {other}"),
            Self::Greatest => format!("{one} >= {other}"),
        }
    }
}

/// The column of the value at the end among those that came.
pub fn came(id: ColumnId) -> String {
    format!("egret_came{}", id.0)
}

/// The same of those that went.
pub fn went(id: ColumnId) -> String {
    format!("egret_went{}", id.0)
}

/// The types whose values at an end can be compared with others, and are the same where they are equal.
const ORDERED: [&str; 9] = [
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

impl Carried {
    /// The columns that changes are added to, with their types.
    pub fn columns(&self, id: ColumnId) -> Vec<(String, &'static str)> {
        match self {
            Self::Count => vec![(stage_column(id), "bigint")],
            Self::Sum(terms) | Self::Average(terms) => Carrier::new(id, *terms).columns(),
            Self::Truth { .. } => truths(id).map(|name| (name, "bigint")).into(),
            Self::AtEnd(_) | Self::Asked => Vec::new(),
        }
    }

    /// What the values of rows, called `value`, come to, column by column.
    pub fn of_rows(&self, id: ColumnId, value: &str, counting: Counting) -> Vec<String> {
        match self {
            Self::Count => vec![counting.of(value)],
            Self::Sum(terms) | Self::Average(terms) => {
                Carrier::new(id, *terms).of_rows(value, counting)
            }
            Self::Truth { .. } => vec![
                counting.where_(value),
                counting.where_(&format!("NOT {value}")),
            ],
            Self::AtEnd(_) | Self::Asked => Vec::new(),
        }
    }

    /// What is shown, of the columns of `row`, where it is made of these.
    pub fn shown(&self, id: ColumnId, row: &str) -> Option<String> {
        match self {
            Self::Sum(terms) => {
                let carrier = Carrier::new(id, *terms);
                Some(carrier.shown(row, &carrier.total(row)))
            }
            Self::Average(terms) => {
                let carrier = Carrier::new(id, *terms);
                let value = format!("{} / {row}.{}", carrier.total(row), carrier.of);
                Some(carrier.shown(row, &value))
            }
            Self::Truth { is_all } => {
                let [are_true, are_false] = truths(id);
                let (one, other) = match is_all {
                    true => ((are_false, false), (are_true, true)),
                    false => ((are_true, true), (are_false, false)),
                };
                Some(format!(
                    "CASE WHEN {row}.{} <> 0 THEN {} WHEN {row}.{} <> 0 THEN {} END",
                    one.0, one.1, other.0, other.1
                ))
            }
            Self::Count | Self::AtEnd(_) | Self::Asked => None,
        }
    }

    /// The end that it is at, if it is.
    pub fn end(&self) -> Option<End> {
        match self {
            Self::AtEnd(end) => Some(*end),
            _ => None,
        }
    }
}

/// How rows are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Each is there once.
    Once,
    /// Each has a weight.
    Weighted,
}

impl Counting {
    /// All of them.
    pub fn rows(self) -> String {
        match self {
            Self::Once => "count(*)".to_owned(),
            Self::Weighted => format!("coalesce(sum({WEIGHT}), 0)::bigint"),
        }
    }

    /// Those of which something is so.
    fn where_(self, condition: &str) -> String {
        match self {
            Self::Once => format!("count(*) FILTER (WHERE {condition})"),
            Self::Weighted => {
                format!("coalesce(sum({WEIGHT}) FILTER (WHERE {condition}), 0)::bigint")
            }
        }
    }

    /// Those of which a value, which is 1 or null, is not null.
    fn of(self, value: &str) -> String {
        match self {
            Self::Once => format!("count({value})"),
            Self::Weighted => format!("coalesce(sum({value} * {WEIGHT}), 0)::bigint"),
        }
    }

    /// What a value comes to, in this type.
    fn sum(self, value: &str, kind: &str) -> String {
        match self {
            Self::Once => format!("coalesce(sum({value}), 0)::{kind}"),
            Self::Weighted => format!("coalesce(sum({value} * {WEIGHT}), 0)::{kind}"),
        }
    }
}

/// How many values are true, and how many are not.
fn truths(id: ColumnId) -> [String; 2] {
    [
        format!("egret_true{}", id.0),
        format!("egret_false{}", id.0),
    ]
}

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Whole numbers, in this type.
    Whole(&'static str),
    /// Decimal numbers. Those that are NaN are counted instead: a sum would never be anything else again.
    Decimal,
    /// Decimal numbers of two scales, the smaller and the larger one. Those with more digits are counted: a sum is printed with as many while
    /// there is one of them.
    OfTwoScales(u32, u32),
}

/// How an aggregate is carried on that is of a type, and whose argument is of this type, and has these scales.
pub fn carried(
    aggregate: &Aggregate,
    (found, argument): (&ColumnType, Option<&str>),
    scales: Option<&BTreeSet<u32>>,
) -> Carried {
    let ordered = |end| {
        let kind = found.sql.as_str();
        let is_ordered = ORDERED.contains(&kind) && found.is_exact && found.collation.is_none();
        let has_scale = kind == "numeric" && scales.is_some_and(|all| all.len() == 1);
        match is_ordered || has_scale {
            true => Carried::AtEnd(end),
            false => Carried::Asked,
        }
    };
    let sums = match aggregate.function.as_deref() {
        Some("count") => return Carried::Count,
        Some("min") => return ordered(End::Least),
        Some("max") => return ordered(End::Greatest),
        Some("bool_or") => return Carried::Truth { is_all: false },
        Some("bool_and" | "every") => return Carried::Truth { is_all: true },
        Some("sum") => true,
        Some("avg") => false,
        _ => return Carried::Asked,
    };
    let terms = match (argument, sums) {
        (Some("smallint" | "integer"), true) => Terms::Whole("bigint"),
        (Some("smallint" | "integer" | "bigint"), _) => Terms::Whole("numeric"),
        // With a scale: what is added up is printed with as many digits, whatever comes and goes.
        (Some(kind), _) if kind.starts_with("numeric(") => Terms::Decimal,
        (Some("numeric"), _) => {
            let scales: Vec<u32> = scales.into_iter().flatten().copied().collect();
            match scales[..] {
                // A sum with something infinite in it would never be anything else again.
                _ if scales.iter().any(|one| *one > SCALE_MAX) => return Carried::Asked,
                [_] => Terms::Decimal,
                [less, more] => Terms::OfTwoScales(less, more),
                _ => return Carried::Asked,
            }
        }
        _ => return Carried::Asked,
    };
    match sums {
        true => Carried::Sum(terms),
        false => Carried::Average(terms),
    }
}

/// The columns in which a sum is carried on.
pub struct Carrier {
    /// What it comes to, and its type.
    pub sum: (String, &'static str),
    /// How many values are in it.
    pub of: String,
    /// How many of them are NaN.
    nan: Option<String>,
    /// How many of them have more digits than others, and how many each has.
    longer: Option<(String, u32, u32)>,
}

impl Carrier {
    /// That of an aggregate.
    pub fn new(id: ColumnId, terms: Terms) -> Self {
        let nan = || Some(format!("egret_nan{}", id.0));
        let (kind, nan, longer) = match terms {
            Terms::Whole(kind) => (kind, None, None),
            Terms::Decimal => ("numeric", nan(), None),
            Terms::OfTwoScales(less, more) => {
                let name = format!("egret_longer{}", id.0);
                ("numeric", nan(), Some((name, less, more)))
            }
        };
        Self {
            sum: (format!("egret_sum{}", id.0), kind),
            of: format!("egret_of{}", id.0),
            nan,
            longer,
        }
    }

    /// Its columns with their types.
    pub fn columns(&self) -> Vec<(String, &'static str)> {
        let longer = self.longer.as_ref().map(|(name, ..)| name);
        let counts = [Some(&self.of), self.nan.as_ref(), longer];
        let counts = counts.into_iter().flatten();
        let counts = counts.map(|name| (name.clone(), "bigint"));
        [self.sum.clone()].into_iter().chain(counts).collect()
    }

    /// What the values of rows, called `value`, come to, column by column.
    fn of_rows(&self, value: &str, counting: Counting) -> Vec<String> {
        let added = match self.nan {
            None => value.to_owned(),
            Some(_) => format!("nullif({value}, 'NaN')"),
        };
        let mut all = vec![
            counting.sum(&added, self.sum.1),
            counting.where_(&format!("{value} IS NOT NULL")),
        ];
        let of_nan = || counting.where_(&format!("{value} = 'NaN'"));
        all.extend(self.nan.iter().map(|_| of_nan()));
        if let Some((_, _, more)) = &self.longer {
            all.push(counting.where_(&format!("scale({value}) = {more}")));
        }
        all
    }

    /// The sum, of columns of `row`.
    pub fn total(&self, row: &str) -> String {
        let sum = format!("{row}.{}", self.sum.0);
        match &self.longer {
            None => sum,
            Some((name, less, more)) => {
                format!("round({sum}, CASE WHEN {row}.{name} <> 0 THEN {more} ELSE {less} END)")
            }
        }
    }

    /// What is shown, of columns of `row`: `value`, which is made of them.
    pub fn shown(&self, row: &str, value: &str) -> String {
        let nan = self.nan.iter();
        let nan = nan.map(|nan| format!("WHEN {row}.{nan} <> 0 THEN 'NaN'::numeric "));
        let (nan, of) = (nan.collect::<String>(), &self.of);
        format!("CASE {nan}WHEN {row}.{of} <> 0 THEN {value} END")
    }
}

/// 1 for a row that counts, else null.
pub fn counted(aggregate: &Aggregate, names: &Names) -> String {
    let argument = aggregate.argument.as_ref();
    let conditions = argument
        .map(|argument| format!("{} IS DISTINCT FROM NULL", argument.operand(names)))
        .into_iter()
        .chain(
            aggregate
                .filter
                .as_ref()
                .map(|filter| filter.operand(names)),
        );
    let conditions: Vec<String> = conditions.collect();
    match conditions.is_empty() {
        true => "1".to_owned(),
        false => format!("CASE WHEN {} THEN 1 END", conditions.join(" AND ")),
    }
}

/// The argument of a row that counts, else null.
pub fn summed(aggregate: &Aggregate, names: &Names) -> String {
    let argument = aggregate.argument.as_ref();
    let argument = argument.map_or("NULL".to_owned(), |argument| argument.sql(names));
    match &aggregate.filter {
        None => argument,
        Some(filter) => format!("CASE WHEN {} THEN {argument} END", filter.sql(names)),
    }
}
