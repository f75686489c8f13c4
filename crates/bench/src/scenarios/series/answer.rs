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
pub(super) fn count_series(body: &[u8]) -> usize {
    body.windows(ELEMENT.len()).filter(|part| *part == ELEMENT).count()
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
pub(super) fn check_answer(
    query: &SeriesQuery,
    catalog: &Catalog,
    vendor: Vendor,
    body: &[u8],
) -> Result<()> {
    let answer: QueryAnswer =
        serde_json::from_slice(body).context("the response is not the JSON of a query")?;
    ensure!(answer.status == "success", "its status is {}", answer.status);
    let comparable_labels = |mut labels: Labels| {
        if vendor == Vendor::VictoriaMetrics {
            labels.remove("__name__");
        }
        labels
    };
    let mut actual = Table::new();
    for element in answer.data.result {
        let points = element
            .value
            .into_iter()
            .chain(element.values.into_iter().flatten())
            .map(|(at, value)| Ok(((at * 1_000.0).round() as i64, value.parse()?)))
            .collect::<Result<BTreeMap<i64, f64>>>()?;
        let previous = actual.insert(comparable_labels(element.metric), points);
        ensure!(previous.is_none(), "a series occurs twice");
    }
    let expected: Table = query
        .expected_series(catalog)
        .into_iter()
        .map(|(labels, points)| (comparable_labels(labels), points.into_iter().collect()))
        .collect();
    compare(&expected, &actual)
}

fn compare(expected: &Table, actual: &Table) -> Result<()> {
    for (labels, points) in expected {
        let actual_points = actual.get(labels).with_context(|| format!("{labels:?} is missing"))?;
        for (at, value) in points {
            let actual_value = actual_points
                .get(at)
                .with_context(|| format!("{labels:?} has no value at {at}"))?;
            ensure!(
                is_close(*value, *actual_value),
                "{labels:?} is {actual_value} at {at} and should be {value}"
            );
        }
        ensure!(
            actual_points.len() == points.len(),
            "{labels:?} has {} values, expected {}",
            actual_points.len(),
            points.len()
        );
    }
    let more = actual.keys().find(|labels| !expected.contains_key(*labels));
    ensure!(more.is_none(), "{:?} is unexpected", more.expect("there is one"));
    Ok(())
}

fn is_close(one: f64, other: f64) -> bool {
    one == other
        || (one.is_nan() && other.is_nan())
        || (one - other).abs() <= TOLERANCE * one.abs().max(other.abs()).max(TOLERANCE)
}

#[cfg(test)]
mod tests;
