//! `egret series …`: every metric, answered at once.

mod admin;
mod exchange;
mod promqltest;
mod query;

use serde::Deserialize;

use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, facts, listing, printable};

pub(crate) use promqltest::run as promqltest;

/// An answer of Prometheus's API.
#[derive(Deserialize)]
struct Success<T> {
    data: T,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    infos: Vec<String>,
}

impl<T> Success<T> {
    /// Says what is noteworthy where it does not get into a program's way.
    fn tell_notes(&self, output: Output) {
        for note in self.warnings.iter().chain(&self.infos) {
            output.remark(&printable(note));
        }
    }
}

#[derive(Deserialize)]
struct Count {
    name: String,
    count: u64,
}

#[derive(Deserialize)]
struct Cardinality {
    series: u64,
    pairs: u64,
    names: u64,
    series_by_metric: Vec<Count>,
    values_by_name: Vec<Count>,
    bytes_by_name: Vec<Count>,
    series_by_pair: Vec<Count>,
}

pub(crate) async fn run(command: cli::Series, api: &Api, output: Output) -> Result<(), Failure> {
    use cli::Series;
    match command {
        Series::Query { query, at } => query::instant(&query, at.as_deref(), api, output).await,
        Series::Range(range) => query::range(&range, api, output).await,
        Series::Labels { label, selectors } => {
            labels(label.as_deref(), &selectors, api, output).await
        }
        Series::Import { file, format } => exchange::import(&file, format, api, output).await,
        Series::Export(export) => exchange::export(&export, api, output).await,
        Series::Delete(delete) => admin::delete(&delete, api, output).await,
        Series::Snapshot { skip_head } => admin::snapshot(skip_head, api, output).await,
        Series::Cardinality { top } => cardinality(top, api, output).await,
        // It needs no server, and was run without one.
        Series::Promqltest { .. } => Ok(()),
    }
}

async fn labels(
    label: Option<&str>,
    selectors: &[String],
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let query: Vec<(&str, &str)> = selectors
        .iter()
        .map(|selector| ("match[]", selector.as_str()))
        .collect();
    let answer = match label {
        Some(label) => {
            api.get_prometheus(&["label", label, "values"], &query)
                .await?
        }
        None => api.get_prometheus(&["labels"], &query).await?,
    };
    output.answer(&answer, |names: Success<Vec<String>>| {
        names.tell_notes(output);
        printable(&names.data.join("\n"))
    })
}

async fn cardinality(top: u32, api: &Api, output: Output) -> Result<(), Failure> {
    let query = [("top", &*top.to_string())];
    let answer = api.get(&["series", "cardinality"], &query).await?;
    output.answer(&answer, |found: Cardinality| {
        let mut text = facts(&[
            ("series", found.series.to_string()),
            ("labels", found.names.to_string()),
            ("label pairs", found.pairs.to_string()),
        ]);
        for (what, unit, counts) in [
            ("metric", "series", found.series_by_metric),
            ("label", "values", found.values_by_name),
            ("label", "bytes", found.bytes_by_name),
            ("label=value", "series", found.series_by_pair),
        ] {
            let rows = counts
                .into_iter()
                .map(|Count { name, count }| vec![printable(&name), count.to_string()]);
            text.push_str(&format!("\n{}\n", listing(&[what, unit], rows)));
        }
        text
    })
}
