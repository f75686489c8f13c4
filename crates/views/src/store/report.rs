//! Reports of views for users.

use std::collections::BTreeMap;

use egret_base::settings::ConfigDuration;
use egret_postgres::tokio_postgres::{Client, Row};

use super::record::Record;
use super::{history, registry};
use crate::error::ViewsError;
use crate::model::{Durations, KeptChanges, Mode, Quantiles, RefreshReport, State, ViewReport};

/// Reports of all views of a database, by name. `latest` returns the last refresh of a view, which
/// the history may not have yet.
pub(crate) async fn list_reports(
    client: &Client,
    database: &str,
    latest_report: impl Fn(i64) -> Option<RefreshReport>,
) -> Result<Vec<ViewReport>, ViewsError> {
    let records = registry::list_records(client).await?;
    let ids: Vec<i64> = records.iter().map(|record| record.id).collect();
    let rows = client.query(include_str!("sql/reports.sql"), &[&ids]).await?;
    let mut statistics = BTreeMap::new();
    for row in &rows {
        let view: i64 = row.get("view");
        let last: Option<String> = row.get("outcome");
        let last_refresh = last.map(|_| history::report_from_row(row));
        statistics.insert(
            view,
            ViewStatistics {
                waiting_changes: row.get("waiting"),
                has_lost_changes: row.get("has_lost"),
                size_bytes: row.get("size_bytes"),
                change_sets: row.get("change_sets"),
                change_set_bytes: row.get("change_set_bytes"),
                waiting_tasks: row.get("waiting_tasks"),
                durations: parse_durations(row),
                last_refresh,
            },
        );
    }
    let names: BTreeMap<i64, String> =
        records.iter().map(|record| (record.id, record.name.to_string())).collect();
    let mut current_views: BTreeMap<i64, bool> = BTreeMap::new();
    let mut reports = Vec::new();
    for record in &records {
        let mut known = statistics.remove(&record.id).unwrap_or_default();
        let latest = latest_report(record.id)
            .filter(|latest| history::is_later(latest, known.last_refresh.as_ref()));
        known.last_refresh = latest.or(known.last_refresh);
        // The views that it reads come before it.
        let reads = record.reads.iter().filter_map(|(_, view)| *view);
        let is_current = record.snapshot.is_some()
            && known.waiting_changes == 0
            && !known.has_lost_changes
            && !record.has_clock
            && reads.clone().all(|view| current_views.get(&view) == Some(&true));
        current_views.insert(record.id, is_current);
        let read_by = records
            .iter()
            .filter(|other| {
                let mut reads = other.reads.iter();
                reads.any(|(_, view)| *view == Some(record.id))
            })
            .map(|other| names[&other.id].clone())
            .collect();
        reports.push(build_report(database, record, known, is_current, read_by));
    }
    reports.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(reports)
}

#[derive(Default)]
struct ViewStatistics {
    waiting_changes: i64,
    /// Whether a crash has lost changes that the view had not applied.
    has_lost_changes: bool,
    size_bytes: i64,
    change_sets: i64,
    change_set_bytes: i64,
    waiting_tasks: i64,
    durations: Option<Durations>,
    last_refresh: Option<RefreshReport>,
}

/// None if the history has no refresh.
fn parse_durations(row: &Row) -> Option<Durations> {
    let quantiles = |phase| match row.get::<_, Option<Vec<f64>>>(phase)?[..] {
        [p50_ms, p95_ms] => Some(Quantiles { p50_ms, p95_ms }),
        _ => None,
    };
    Some(Durations {
        waiting: quantiles("waited")?,
        applying: quantiles("applied")?,
        other: quantiles("other")?,
        total: quantiles("total")?,
    })
}

fn build_report(
    database: &str,
    record: &Record,
    statistics: ViewStatistics,
    is_current: bool,
    read_by: Vec<String>,
) -> ViewReport {
    ViewReport {
        database: database.to_owned(),
        name: record.name.clone(),
        query: record.query.clone(),
        owner: record.owner.clone(),
        mode: record.mode,
        schedule: record.schedule.clone(),
        // One in mode immediate that is not current is about to be rebuilt.
        state: match (record.mode, record.state) {
            (Mode::Immediate, State::Active) if !is_current => State::New,
            (_, state) => state,
        },
        reason: record.reason.clone(),
        failures: record.failures,
        reads: record.reads.iter().map(|(name, _)| name.clone()).collect(),
        read_by,
        snapshot: record.snapshot.clone(),
        fresh_at_ms: record.fresh_at_ms,
        has_clock: record.has_clock,
        is_current,
        waiting_changes: statistics.waiting_changes,
        size_bytes: statistics.size_bytes,
        durations: statistics.durations,
        last_refresh: statistics.last_refresh,
        changes: record.retention_ms.map(|kept_ms| KeptChanges {
            retention: ConfigDuration::ms(kept_ms.unsigned_abs()),
            sequence: record.sequence,
            sets: statistics.change_sets,
            size_bytes: statistics.change_set_bytes,
            queue: record.queue.clone(),
            waiting_tasks: statistics.waiting_tasks,
        }),
        advice: None,
    }
}
