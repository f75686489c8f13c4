//! The demo's series: the weather of every hour at New York's airports in 2013, and counters of
//! what departed from them. They are imported through the HTTP door, with the times they have.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Context;
use bytes::Bytes;
use csv::StringRecord;
use egret_base::Timestamp;
use egret_metrics_model::{Labels, METRIC_NAME, SeriesSamples};
use egret_metrics_wire::json_lines::append_line;
use futures_util::stream;
use serde::Deserialize;

use super::csv_stream::decoder;
use super::delays::decode_response;
use super::{FLIGHTS, WEATHER};
use crate::api::Api;

/// Columns of the weather and the metrics that they become.
const WEATHER_METRICS: [(&str, &str); 8] = [
    ("temp", "weather_temperature_fahrenheit"),
    ("dewp", "weather_dewpoint_fahrenheit"),
    ("humid", "weather_humidity_percent"),
    ("wind_dir", "weather_wind_direction_degrees"),
    ("wind_speed", "weather_wind_speed_mph"),
    ("precip", "weather_precipitation_inches"),
    ("pressure", "weather_pressure_millibars"),
    ("visib", "weather_visibility_miles"),
];

/// Counters of departures, in the order of [`Departures`].
const DEPARTURE_COUNTERS: [&str; 3] = [
    "flights_departures_total",
    "flights_delayed_departures_total",
    "flights_departure_delay_minutes_total",
];

/// A departure this late is delayed, as airlines count: minutes.
const DELAY_MINUTES_MIN: f64 = 15.0;

const HOUR_MS: i64 = 3_600_000;

/// What all of them have: it tells whether an earlier start has imported them.
const IMPORTED_QUERY: &str = "count(last_over_time(flights_departures_total[1d]))";

/// The end of the year, in New York.
pub(super) const YEAR_END: &str = "2014-01-01T05:00:00Z";

/// The carriers of which most departures were delayed.
pub(super) const WORST_CARRIERS_QUERY: &str =
    "topk(3, sum by (carrier) (increase(flights_delayed_departures_total[365d]))
       / sum by (carrier) (increase(flights_departures_total[365d])) * 100)";

/// Counts of one hour: departures, delayed departures, minutes of delay.
type Departures = [f64; 3];

/// Values by time, by series.
type Samples = BTreeMap<Labels, BTreeMap<i64, f64>>;

/// Results of the demo's series.
pub(super) struct MetricsResult {
    /// Samples that this start imported, and how long that took, in milliseconds; `None` when an
    /// earlier one did.
    pub samples: Option<(u64, f64)>,
    /// The answer to [`WORST`]: carrier and percentage.
    pub worst: Vec<(String, f64)>,
}

#[derive(Deserialize)]
struct QueryResponse {
    data: Vector,
}

#[derive(Deserialize)]
struct Vector {
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

#[derive(Deserialize)]
struct ImportReceipt {
    samples: u64,
}

/// Imports the series, unless an earlier start has, and asks something about them.
pub(super) async fn import(api: &Api) -> anyhow::Result<MetricsResult> {
    let marker = query(api, IMPORTED_QUERY).await?;
    let samples = if marker.is_empty() { Some(upload(api).await?) } else { None };
    let worst = query(api, WORST_CARRIERS_QUERY).await?.into_iter().map(|sample| {
        let carrier = sample.metric.get("carrier").cloned().unwrap_or_default();
        Ok((carrier, sample.value.1.parse()?))
    });
    Ok(MetricsResult { samples, worst: worst.collect::<anyhow::Result<_>>()? })
}

async fn query(api: &Api, text: &str) -> anyhow::Result<Vec<Sample>> {
    let form = [("query", text), ("time", YEAR_END)];
    let answer: QueryResponse = decode_response(api.post_prometheus_form(&["query"], &form).await)?;
    Ok(answer.data.result)
}

async fn upload(api: &Api) -> anyhow::Result<(u64, f64)> {
    let started = Instant::now();
    let mut samples = weather()?;
    samples.extend(departures()?);
    let lines = samples.into_iter().map(|(labels, values)| {
        let (times_ms, values) = values.into_iter().unzip();
        let samples = SeriesSamples { times_ms, values, ..SeriesSamples::default() };
        let mut line = String::new();
        append_line(&labels, &samples, &mut line);
        Ok(Bytes::from(line))
    });
    let query = [("format", "jsonl")];
    let uploading = api.upload(&["series", "import"], &query, false, stream::iter(lines));
    let receipt: ImportReceipt = decode_response(uploading.await)?;
    Ok((receipt.samples, started.elapsed().as_secs_f64() * 1e3))
}

/// Calls `row` with each row of a file, which is asked for cells by the names of columns.
fn for_each_row(
    csv_zst: &'static [u8],
    columns: &[&str],
    mut row: impl FnMut(&[&str]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut reader = csv::Reader::from_reader(decoder(csv_zst)?);
    let head = reader.headers()?.clone();
    let column_index = |column: &&str| {
        let found = head.iter().position(|name| name == *column);
        found.with_context(|| format!("the demo's data has no column {column}"))
    };
    let indices: Vec<usize> = columns.iter().map(column_index).collect::<anyhow::Result<_>>()?;
    let mut record = StringRecord::new();
    while reader.read_record(&mut record)? {
        let cells: Vec<&str> = indices.iter().map(|index| &record[*index]).collect();
        row(&cells)?;
    }
    Ok(())
}

fn hour_ms(text: &str) -> anyhow::Result<i64> {
    let time: Timestamp = text.parse().map_err(anyhow::Error::msg)?;
    Ok(time.as_micros() / 1_000)
}

fn weather() -> anyhow::Result<Samples> {
    let mut columns = vec!["origin", "time_hour"];
    columns.extend(WEATHER_METRICS.map(|(column, _)| column));
    let mut samples = Samples::new();
    for_each_row(WEATHER.csv_zst, &columns, |cells| {
        let time_ms = hour_ms(cells[1])?;
        for ((_, metric), cell) in WEATHER_METRICS.iter().zip(&cells[2..]) {
            // What was not measured says `NA`.
            if let Ok(value) = cell.parse() {
                let labels = Labels::new([(METRIC_NAME, *metric), ("origin", cells[0])]);
                samples.entry(labels).or_default().insert(time_ms, value);
            }
        }
        Ok(())
    })?;
    Ok(samples)
}

/// Counters that have a value at the end of each hour of the year, whether anything departed in it
/// or not.
fn departures() -> anyhow::Result<Samples> {
    let mut by_hour: BTreeMap<(String, String), BTreeMap<i64, Departures>> = BTreeMap::new();
    let columns = ["origin", "carrier", "time_hour", "dep_delay"];
    let (mut first, mut last) = (i64::MAX, i64::MIN);
    for_each_row(FLIGHTS.csv_zst, &columns, |cells| {
        let time_ms = hour_ms(cells[2])? + HOUR_MS;
        (first, last) = (first.min(time_ms), last.max(time_ms));
        // What was cancelled did not depart.
        if let Ok(delay) = cells[3].parse::<f64>() {
            let series = (cells[0].to_owned(), cells[1].to_owned());
            let hour = by_hour.entry(series).or_default().entry(time_ms).or_default();
            hour[0] += 1.0;
            hour[1] += f64::from(u8::from(delay >= DELAY_MINUTES_MIN));
            hour[2] += delay.max(0.0);
        }
        Ok(())
    })?;
    let mut samples = Samples::new();
    for ((origin, carrier), hours) in by_hour {
        for (index, metric) in DEPARTURE_COUNTERS.iter().enumerate() {
            let labels = [(METRIC_NAME, *metric), ("origin", &origin), ("carrier", &carrier)];
            let values = samples.entry(Labels::new(labels)).or_default();
            let mut total = 0.0;
            for time_ms in (first - HOUR_MS..=last).step_by(HOUR_MS as usize) {
                total += hours.get(&time_ms).map_or(0.0, |hour| hour[index]);
                values.insert(time_ms, total);
            }
        }
    }
    Ok(samples)
}
