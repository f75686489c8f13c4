//! How aggregates are carried on by what changed, and what is kept of them for that.

use std::collections::BTreeSet;

use crate::core::expression::{ColumnId, Names};
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
    /// By asking again.
    Asked,
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

/// How an aggregate is carried on whose argument is of this type, and has these scales.
pub fn carried(
    aggregate: &Aggregate,
    argument: Option<&str>,
    scales: Option<&BTreeSet<u32>>,
) -> Carried {
    let sums = match aggregate.function.as_deref() {
        Some("count") => return Carried::Count,
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
    pub fn of_rows(&self, value: &str) -> Vec<String> {
        let kind = self.sum.1;
        let counted = |condition: &str| {
            format!("coalesce(sum({WEIGHT}) FILTER (WHERE {value} {condition}), 0)::bigint")
        };
        let added = match self.nan {
            None => value.to_owned(),
            Some(_) => format!("nullif({value}, 'NaN')"),
        };
        let mut all = vec![
            format!("coalesce(sum({added} * {WEIGHT}), 0)::{kind}"),
            counted("IS NOT NULL"),
        ];
        all.extend(self.nan.iter().map(|_| counted("= 'NaN'")));
        if let Some((_, _, more)) = &self.longer {
            all.push(format!(
                "coalesce(sum({WEIGHT}) FILTER (WHERE scale({value}) = {more}), 0)::bigint"
            ));
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
        .map(|argument| format!("{} IS NOT NULL", argument.operand(names)))
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
