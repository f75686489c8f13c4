//! `egret series cardinality`.

use egret_base::Timestamp;
use egret_base::settings::ConfigDuration;
use serde::Deserialize;

use super::query;
use crate::api::Api;
use crate::failure::Failure;
use crate::output::{Output, format_bytes, format_fields, listing, printable};

#[derive(Deserialize)]
struct Count {
    name: String,
    count: u64,
}

#[derive(Deserialize)]
struct Cost {
    metric: String,
    series: u64,
    new_series: u64,
    samples: u64,
    disk_bytes: u64,
    memory_bytes: u64,
}

#[derive(Deserialize)]
struct Churn {
    from: Timestamp,
    new_series: u64,
}

#[derive(Deserialize)]
struct Cardinality {
    series: u64,
    new_series: u64,
    pairs: u64,
    names: u64,
    values_by_name: Vec<Count>,
    bytes_by_name: Vec<Count>,
    series_by_metric: Vec<Count>,
    series_by_pair: Vec<Count>,
    costs_by_metric: Vec<Cost>,
    churn: Vec<Churn>,
}

pub(super) async fn show(
    top: u32,
    last: ConfigDuration,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let start = query::server_time(api).await? - last.0 as f64 / 1e3;
    let (top, start) = (top.to_string(), format!("{start:.0}"));
    let query = [("top", top.as_str()), ("start", &start)];
    let answer = api.get(&["series", "cardinality"], &query).await?;
    output.print_answer(&answer, text)
}

fn text(cardinality: Cardinality) -> String {
    let mut text = format_fields(&[
        ("series", cardinality.series.to_string()),
        ("new series", cardinality.new_series.to_string()),
        ("labels", cardinality.names.to_string()),
        ("label pairs", cardinality.pairs.to_string()),
    ]);
    let mut add = |head: &[&str], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            text.push_str(&format!("\n{}\n", listing(head, rows)));
        }
    };
    for (kind, unit, counts) in [
        ("metric", "series", cardinality.series_by_metric),
        ("label", "values", cardinality.values_by_name),
        ("label", "bytes", cardinality.bytes_by_name),
        ("label=value", "series", cardinality.series_by_pair),
    ] {
        let row = |Count { name, count }| vec![printable(&name), count.to_string()];
        add(&[kind, unit], counts.into_iter().map(row).collect());
    }
    let row = |cost: Cost| {
        vec![
            printable(&cost.metric),
            cost.series.to_string(),
            cost.new_series.to_string(),
            cost.samples.to_string(),
            format_bytes(cost.disk_bytes),
            format_bytes(cost.memory_bytes),
        ]
    };
    let head = ["metric", "series", "new", "samples", "on disk", "in memory"];
    let costs = cardinality.costs_by_metric.into_iter();
    add(&head, costs.map(row).collect());
    let row = |churn: Churn| vec![churn.from.to_string(), churn.new_series.to_string()];
    let churn = cardinality.churn.into_iter();
    add(&["from", "new series"], churn.map(row).collect());
    text
}
