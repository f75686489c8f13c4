//! What Egret scrapes and evaluates: targets, rules, alerts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::Success;
use crate::api::Api;
use crate::cli::Monitor;
use crate::failure::Failure;
use crate::output::{Output, format_duration, listing, printable};

/// The time that stands for none.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Targets {
    active_targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    labels: BTreeMap<String, String>,
    scrape_pool: String,
    health: String,
    scrape_interval: String,
    last_scrape: String,
    last_scrape_duration: f64,
    last_error: String,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    state: String,
    health: String,
    #[serde(default)]
    last_error: String,
    last_evaluation: String,
    evaluation_time: f64,
}

#[derive(Deserialize)]
struct Alerts {
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Alert {
    labels: BTreeMap<String, String>,
    state: String,
    active_at: String,
    value: String,
}

pub(super) async fn run(command: Monitor, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        Monitor::Targets { job } => {
            let mut query = vec![("state", "active")];
            query.extend(job.as_deref().map(|job| ("scrapePool", job)));
            let answer = api.get_prometheus(&["targets"], &query).await?;
            output.print_answer(&answer, |response: Success<Targets>| targets(response.data))
        }
        Monitor::Rules { groups } => {
            let query: Vec<(&str, &str)> =
                groups.iter().map(|group| ("rule_group[]", group.as_str())).collect();
            let answer = api.get_prometheus(&["rules"], &query).await?;
            output.print_answer(&answer, |found: Success<Groups>| rules(found.data))
        }
        Monitor::Alerts => {
            let answer = api.get_prometheus(&["alerts"], &[]).await?;
            output.print_answer(&answer, |found: Success<Alerts>| alerts(found.data))
        }
        Monitor::Reload => {
            api.reload_prometheus().await?;
            if output.is_json() {
                output.print_json(&json!({"reloaded": true}))
            } else {
                output.print_text("the files of rules and targets were reloaded")
            }
        }
    }
}

/// A time, if there was one.
fn format_time(text: String) -> String {
    match text.as_str() {
        NEVER => String::new(),
        _ => printable(&text),
    }
}

fn format_seconds(seconds: f64) -> String {
    format_duration((seconds * 1_000.0).round() as u64)
}

/// Labels but for these, as `name=value`.
fn format_labels(labels: &BTreeMap<String, String>, excluded: &[&str]) -> String {
    let labels = labels.iter();
    let others = labels.filter(|(name, _)| !excluded.contains(&name.as_str()));
    let pairs: Vec<String> =
        others.map(|(name, value)| printable(&format!("{name}={value}"))).collect();
    pairs.join(" ")
}

fn targets(list: Targets) -> String {
    let rows = list.active_targets.into_iter().map(|target| {
        let instance = target.labels.get("instance");
        vec![
            printable(&target.scrape_pool),
            printable(instance.map_or("", String::as_str)),
            printable(&target.health),
            printable(&target.scrape_interval),
            format_time(target.last_scrape),
            format_seconds(target.last_scrape_duration),
            printable(&target.last_error),
        ]
    });
    let head = ["job", "instance", "health", "every", "scraped", "took", "error"];
    listing(&head, rows)
}

fn rules(list: Groups) -> String {
    let rows = list.groups.into_iter().flat_map(|group| {
        let name = printable(&group.name);
        group.rules.into_iter().map(move |rule| {
            vec![
                name.clone(),
                printable(&rule.name),
                printable(&rule.kind),
                printable(&rule.health),
                printable(&rule.state),
                format_time(rule.last_evaluation),
                format_seconds(rule.evaluation_time),
                printable(&rule.last_error),
            ]
        })
    });
    let head = ["group", "rule", "type", "health", "state", "evaluated", "took", "error"];
    listing(&head, rows)
}

fn alerts(list: Alerts) -> String {
    let rows = list.alerts.into_iter().map(|alert| {
        let name = alert.labels.get("alertname");
        vec![
            printable(name.map_or("", String::as_str)),
            printable(&alert.state),
            format_time(alert.active_at),
            printable(&alert.value),
            format_labels(&alert.labels, &["alertname"]),
        ]
    });
    listing(&["alert", "state", "since", "value", "labels"], rows)
}
