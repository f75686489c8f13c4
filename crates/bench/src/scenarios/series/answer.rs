//! What a server answered, and whether that is right.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::evaluate::{Catalog, Labels};
use super::query::SeriesQuery;
use super::system::Vendor;

/// Two values are the same up to this share of them: the order of a sum is the server's.
const TOLERANCE: f64 = 1e-6;

const ELEMENT: &[u8] = b"{\"metric\":";

/// How many series an answer has, by a look at its text.
pub(super) fn count(body: &[u8]) -> usize {
    body.windows(ELEMENT.len())
        .filter(|part| *part == ELEMENT)
        .count()
}

#[derive(Deserialize)]
struct QueryAnswer {
    status: String,
    data: QueryData,
}

#[derive(Deserialize)]
struct QueryData {
    result: Vec<Element>,
}

#[derive(Deserialize)]
struct Element {
    metric: Labels,
    value: Option<(f64, String)>,
    values: Option<Vec<(f64, String)>>,
}

/// Values by labels and moment.
type Table = BTreeMap<Labels, BTreeMap<i64, f64>>;

/// Whether an answer is what the fleet says. VictoriaMetrics keeps and drops names of metrics in
/// other places, so they are not looked at there.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(
    query: &SeriesQuery,
    catalog: &Catalog,
    make: Vendor,
    body: &[u8],
) -> Result<()> {
    let answer: QueryAnswer =
        serde_json::from_slice(body).context("the response is not the JSON of a query")?;
    ensure!(
        answer.status == "success",
        "its status is {}",
        answer.status
    );
    let named = |mut labels: Labels| {
        if make == Vendor::VictoriaMetrics {
            labels.remove("__name__");
        }
        labels
    };
    let mut got = Table::new();
    for element in answer.data.result {
        let points = element
            .value
            .into_iter()
            .chain(element.values.into_iter().flatten())
            .map(|(at, value)| Ok(((at * 1_000.0).round() as i64, value.parse()?)))
            .collect::<Result<BTreeMap<i64, f64>>>()?;
        let before = got.insert(named(element.metric), points);
        ensure!(before.is_none(), "a series occurs twice");
    }
    let expected: Table = query
        .expected(catalog)
        .into_iter()
        .map(|(labels, points)| (named(labels), points.into_iter().collect()))
        .collect();
    compare(&expected, &got)
}

fn compare(expected: &Table, got: &Table) -> Result<()> {
    for (labels, points) in expected {
        let others = got
            .get(labels)
            .with_context(|| format!("{labels:?} is missing"))?;
        for (at, value) in points {
            let other = others
                .get(at)
                .with_context(|| format!("{labels:?} has no value at {at}"))?;
            ensure!(
                same(*value, *other),
                "{labels:?} is {other} at {at} and should be {value}"
            );
        }
        ensure!(
            others.len() == points.len(),
            "{labels:?} has {} values, expected {}",
            others.len(),
            points.len()
        );
    }
    let more = got.keys().find(|labels| !expected.contains_key(*labels));
    ensure!(
        more.is_none(),
        "{:?} is unexpected",
        more.expect("there is one")
    );
    Ok(())
}

fn same(one: f64, other: f64) -> bool {
    one == other
        || (one.is_nan() && other.is_nan())
        || (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(TOLERANCE)
}

#[cfg(test)]
mod tests;
