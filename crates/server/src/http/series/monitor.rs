//! Rules, alerts, scrape targets and Alertmanagers, as Prometheus's API shows them.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use egret_metrics_model::{LabelMatcher, Labels};
use egret_promql::{QueryError, parse_selector};
use egret_series::Monitor;
use egret_series::core::metadata::Description;
use egret_series::core::rules::{RuleFilter, RuleType, matches_labels};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::json::json as answer;
use super::metadata::parse_integer;
use super::parameters::{Parameters, invalid_parameter};
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// The response to a successful request, with these data.
pub(super) fn success_response(data: &impl Serialize) -> Response {
    let mut body = b"{\"status\":\"success\",\"data\":".to_vec();
    serde_json::to_writer(&mut body, data).expect("writing JSON to memory cannot fail");
    body.push(b'}');
    answer(body)
}

fn values(parameters: &Parameters, name: &str) -> Vec<String> {
    parameters.values(name).map(str::to_owned).collect()
}

fn rule_filter(parameters: &Parameters) -> Result<RuleFilter, QueryError> {
    let kind = match parameters.text("type").to_ascii_lowercase().as_str() {
        "" => None,
        "alert" => Some(RuleType::Alert),
        "record" => Some(RuleType::Record),
        other => {
            return Err(invalid_parameter("type", format_args!("not supported value {other:?}")));
        }
    };
    let next = parameters.text("group_next_token");
    let groups_max = match parameters.text("group_limit") {
        "" if next.is_empty() => None,
        "" => {
            let message = "group_limit needs to be present in order to paginate over the groups";
            return Err(invalid_parameter("group_next_token", message));
        }
        text => match text.parse::<usize>() {
            Ok(0) => {
                return Err(invalid_parameter(
                    "group_limit",
                    "group_limit needs to be greater than 0",
                ));
            }
            Ok(most) => Some(most),
            Err(_) => {
                let needed = "group_limit needs to be a valid number";
                return Err(invalid_parameter("group_limit", needed));
            }
        },
    };
    Ok(RuleFilter {
        kind,
        names: values(parameters, "rule_name[]"),
        groups: values(parameters, "rule_group[]"),
        files: values(parameters, "file[]"),
        selectors: parameters.selectors()?,
        excludes_alerts: parameters.flag("exclude_alerts")?,
        groups_max,
        next: (!next.is_empty()).then(|| next.to_owned()),
    })
}

/// List rules
///
/// The rules are listed by group, with the result of their last evaluation and their active alerts.
#[utoipa::path(get, path = "/prometheus/api/v1/rules", operation_id = "listRules", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("type" = Option<String>, Query, description = "The kind of rules to list: `alert` or `record`."),
        ("rule_name[]" = Option<Vec<String>>, Query, description = "A rule's name. The parameter may be repeated."),
        ("rule_group[]" = Option<Vec<String>>, Query, description = "A group's name. The parameter may be repeated."),
        ("file[]" = Option<Vec<String>>, Query, description = "A file. The parameter may be repeated."),
        ("match[]" = Option<Vec<String>>, Query, description = "A selector of the rules' labels. The parameter may be repeated."),
        ("exclude_alerts" = Option<bool>, Query, description = "Whether to leave out active alerts."),
        ("group_limit" = Option<u64>, Query, description = "The maximum number of groups. The \
            next page is requested with `groupNextToken` of the response."),
        ("group_next_token" = Option<String>, Query, description = "The `groupNextToken` of the previous page."),
    ),
    responses((status = 200, description = "The groups with their rules.", content_type = "application/json")))]
pub(super) async fn rules(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let filter = rule_filter(&parameters)?;
    let Some(rules) = monitor.rules().select(&filter) else {
        let token = filter.next.unwrap_or_default();
        let message = format_args!("invalid group_next_token '{token}'. were rule groups changed?");
        return Err(invalid_parameter("group_next_token", message).into());
    };
    Ok(success_response(&rules))
}

/// List alerts
///
/// The list has pending and firing alerts.
#[utoipa::path(get, path = "/prometheus/api/v1/alerts", operation_id = "listAlerts", tag = "series",
    security(("token" = ["series:read"])),
    responses((status = 200, description = "The alerts.", content_type = "application/json")))]
pub(super) async fn alerts(State(monitor): State<Monitor>, _: DefaultTenantAccess) -> Response {
    success_response(&monitor.alerts())
}

/// List the targets that are scraped
///
/// The list has the targets with the result of their last scrape, and those that relabelling
/// dropped.
#[utoipa::path(get, path = "/prometheus/api/v1/targets", operation_id = "listTargets", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("state" = Option<String>, Query, description = "The state of the targets: `active`, `dropped` or `any`."),
        ("scrapePool" = Option<String>, Query, description = "List only targets of this job."),
    ),
    responses((status = 200, description = "The targets.", content_type = "application/json")))]
pub(super) async fn targets(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Response {
    let mut targets = monitor.targets();
    let pool = parameters.text("scrapePool");
    if !pool.is_empty() {
        targets = targets.for_pool(pool);
    }
    let targets = match parameters.text("state").to_ascii_lowercase().as_str() {
        "" | "any" => targets,
        "active" => targets.only_active(),
        "dropped" => targets.only_dropped(),
        _ => targets.only_active().only_dropped(),
    };
    success_response(&targets)
}

/// The labels of a target as an object.
fn to_map(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// List metadata of metrics by target
#[utoipa::path(get, path = "/prometheus/api/v1/targets/metadata", operation_id = "listTargetMetadata",
    tag = "series", security(("token" = ["series:read"])),
    params(
        ("match_target" = Option<String>, Query, description = "A selector of the targets' labels."),
        ("metric" = Option<String>, Query, description = "List only metadata of this metric."),
        ("limit" = Option<i64>, Query, description = "Entries wanted."),
    ),
    responses(
        (status = 200, description = "Type, help and unit, by target.", content_type = "application/json"),
        (status = 404, description = "The targets have no such metadata.", body = Problem, content_type = "application/json"),
    ))]
pub(super) async fn target_metadata(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let limit = parse_integer(&parameters, "limit")?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let matchers: Vec<LabelMatcher> = match parameters.text("match_target") {
        "" => Vec::new(),
        text => parse_selector(text)?,
    };
    let metric = parameters.text("metric");
    let mut entries = Vec::new();
    for (labels, descriptions) in monitor.target_metadata() {
        if !matches_labels(&matchers, &labels) {
            continue;
        }
        for entry_metadata in descriptions.iter() {
            let Description { metric: name, kind, unit, help } = entry_metadata.description();
            if !metric.is_empty() && metric != name {
                continue;
            }
            let mut entry = json!({"target": to_map(&labels), "type": kind.as_str(), "help": help, "unit": unit});
            if metric.is_empty() {
                entry["metric"] = name.into();
            }
            entries.push(entry);
        }
    }
    entries.truncate(limit.unwrap_or(usize::MAX));
    if entries.is_empty() {
        let (status, code) = (StatusCode::NOT_FOUND, "series_metadata_not_found");
        let detail = "specified metadata not found".to_owned();
        Err(Problem::new(status, code, detail, false))
    } else {
        Ok(success_response(&Value::Array(entries)))
    }
}

/// List the jobs of targets
#[utoipa::path(get, path = "/prometheus/api/v1/scrape_pools", operation_id = "listScrapePools",
    tag = "series", security(("token" = ["series:read"])),
    responses((status = 200, description = "Their names.", content_type = "application/json")))]
pub(super) async fn scrape_pools(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
) -> Response {
    success_response(&json!({"scrapePools": monitor.scrape_pools().await}))
}

/// List the Alertmanagers that alerts are sent to
#[utoipa::path(get, path = "/prometheus/api/v1/alertmanagers", operation_id = "listAlertmanagers",
    tag = "series", security(("token" = ["series:read"])),
    responses((status = 200, description = "Their addresses.", content_type = "application/json")))]
pub(super) async fn alertmanagers(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
) -> Response {
    let active = monitor.alertmanagers();
    success_response(&json!({"activeAlertmanagers": active, "droppedAlertmanagers": []}))
}

/// Get the configuration in force
///
/// The response has the settings and files in the form of Prometheus's configuration file, without
/// secrets.
#[utoipa::path(get, path = "/prometheus/api/v1/status/config", operation_id = "getConfig", tag = "series",
    security(("token" = ["series:read"])),
    responses((status = 200, description = "The configuration as YAML.", content_type = "application/json")))]
pub(super) async fn config(State(monitor): State<Monitor>, _: DefaultTenantAccess) -> Response {
    success_response(&json!({"yaml": monitor.configuration().await}))
}

/// Reload the files of rules and targets
///
/// Unchanged rules and targets continue. If a file is not valid, nothing is changed, and the
/// response has the reason.
#[utoipa::path(post, path = "/prometheus/-/reload", operation_id = "reloadMonitor",
    tag = "series", security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The files were read and are in force."),
        (status = 400, description = "A file is not valid.", body = Problem,
            content_type = "application/json"),
    ))]
pub(super) async fn reload(
    State(monitor): State<Monitor>,
    _: DefaultTenantAccess,
) -> Result<(), Problem> {
    monitor.reload().await?;
    Ok(())
}
