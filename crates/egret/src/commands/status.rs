//! `egret status`: what runs and what does not.

use std::collections::BTreeMap;

use crate::api::Api;
use crate::failure::Failure;
use crate::output::{Output, format_bytes, format_duration, format_fields, listing};
use crate::responses::{
    Condition, Documents, PartFailure, Postgres, Queue, Section, Series, Service, Status, Volume,
};

pub(crate) async fn show(api: &Api, output: Output) -> Result<(), Failure> {
    let answer = api.get(&["status"], &[]).await?;
    output.print_answer(&answer, text)
}

fn text(status: Status) -> String {
    let limits = match &status.volume {
        Some(Section::Available(volume)) => volume.limits.clone(),
        _ => String::new(),
    };
    let is_connected = is_ready("postgres", &status.services);
    let summary = format_fields(&[
        ("egret", format!("{}, up {}", status.version, format_duration(status.uptime_ms))),
        (
            "clock",
            // Worth a line only while it is held.
            status
                .clock
                .filter(|clock| clock.state != "following")
                .map_or_else(String::new, |clock| super::clock::summary_line(&clock)),
        ),
        ("postgres", status.postgres.map_or_else(String::new, describe_postgres)),
        ("proxy", status.proxy.map_or_else(String::new, |proxy| proxy.address)),
        (
            "volume",
            status.volume.map_or_else(String::new, |part| part.describe_with(describe_volume)),
        ),
        (
            "branches",
            status.branches.map_or_else(String::new, |part| {
                part.describe_with(|branches| describe_counts(branches.total, &branches.by_state))
            }),
        ),
        ("limits", limits),
        ("queue", status.queue.map_or_else(String::new, |part| part.describe_with(describe_queue))),
        (
            "series",
            status.series.map_or_else(String::new, |part| part.describe_with(describe_series)),
        ),
        (
            "views",
            status.views.map_or_else(String::new, |part| {
                part.describe_with(|views| describe_counts(views.total, &views.by_state))
            }),
        ),
        (
            "documents",
            status
                .documents
                .map_or_else(String::new, |documents| describe_writers(documents, is_connected)),
        ),
    ]);
    let lists = lists(status.services, status.failed, status.conditions);
    format!("{summary}\n{lists}")
}

fn is_ready(name: &str, services: &[Service]) -> bool {
    services.iter().all(|service| service.name != name || service.ready)
}

/// What runs, what has failed, and which faults last.
fn lists(services: Vec<Service>, failed: Vec<PartFailure>, conditions: Vec<Condition>) -> String {
    let services = services.into_iter().map(|service| {
        let state = if service.ready { "ready" } else { "not ready" };
        vec![service.name, state.to_owned(), service.reason.unwrap_or_default()]
    });
    let failed = failed.into_iter().map(|failed| vec![failed.part, failed.reason, failed.remedy]);
    let conditions = conditions
        .into_iter()
        .map(|condition| vec![condition.name, condition.subject, condition.reason]);
    format!(
        "{}{}{}",
        listing(&["service", "state", "reason"], services),
        listing_or_empty(&["failed", "reason", "remedy"], failed),
        listing_or_empty(&["condition", "subject", "reason"], conditions),
    )
}

/// A listing after an empty line, or nothing where there are no rows.
fn listing_or_empty<const N: usize>(
    heads: &[&str; N],
    rows: impl ExactSizeIterator<Item = Vec<String>>,
) -> String {
    if rows.len() == 0 {
        return String::new();
    }
    format!("\n{}", listing(heads, rows))
}

fn describe_postgres(postgres: Postgres) -> String {
    let location = match (postgres.port, postgres.hosts) {
        (Some(port), _) => format!("port {port}"),
        (None, Some(hosts)) => format!("external, {}", hosts.join(" or ")),
        (None, None) => String::new(),
    };
    let parts = [postgres.version, postgres.state, location];
    let present_parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    present_parts.join(", ")
}

fn describe_volume(volume: Volume) -> String {
    let (free, size) = (format_bytes(volume.free_bytes), format_bytes(volume.size_bytes));
    format!("{} at {}, {free} of {size} free", volume.driver, volume.path)
}

/// How many there are, and of those how many in which state.
fn describe_counts(total: u64, by_state: &BTreeMap<String, u64>) -> String {
    let nonzero: Vec<String> = by_state
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    match nonzero.as_slice() {
        [] => total.to_string(),
        states => format!("{total} ({})", states.join(", ")),
    }
}

fn describe_queue(queue: Queue) -> String {
    let tasks = |states: &[&str]| {
        let counts = states.iter().filter_map(|state| queue.tasks.get(*state));
        counts.sum::<u64>()
    };
    let mut text = format!(
        "{} queues; {} tasks pending, {} leased, {} dead",
        queue.queues,
        tasks(&["waiting", "delayed", "ready"]),
        tasks(&["leased"]),
        tasks(&["dead"])
    );
    if queue.oldest_ready_ms > 0 {
        text.push_str(&format!("; oldest ready for {}", format_duration(queue.oldest_ready_ms)));
    }
    text.push_str(&format!("; {} partitions, durability {}", queue.partitions, queue.durability));
    if queue.partitions_stopped > 0 {
        text.push_str(&format!("; {} HAVE STOPPED", queue.partitions_stopped));
    }
    text
}

/// The writers of the databases with collections.
fn describe_writers(documents: Documents, is_connected: bool) -> String {
    let writers: Vec<String> = documents
        .databases
        .into_iter()
        .map(|(database, standing)| format!("{database} {standing}"))
        .collect();
    match writers.as_slice() {
        [] if !is_connected => "unknown without a connection to PostgreSQL".to_owned(),
        [] => "no database has collections".to_owned(),
        writers => writers.join("; "),
    }
}

fn describe_series(series: Series) -> String {
    let mut text = format!(
        "{} series; {} shards, durability {}",
        series.series, series.shards, series.durability
    );
    if series.shards_failed > 0 {
        text.push_str(&format!("; {} HAVE STOPPED", series.shards_failed));
    }
    text
}

#[cfg(test)]
mod tests;
