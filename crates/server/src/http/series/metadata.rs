//! What metrics are: type, unit and help.

use axum::extract::State;
use axum::response::Response;
use egret_series::Series;
use egret_series::core::promql::QueryError;

use super::json::{append_end, append_list, append_text};
use super::parameters::Parameters;
use super::{Member, json};
use crate::problem::Problem;

/// A whole number; `None` when it is missing.
pub(super) fn whole(parameters: &Parameters, name: &str) -> Result<Option<i64>, QueryError> {
    match parameters.text(name) {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| QueryError::Invalid {
            message: format!("{name} must be a number"),
        }),
    }
}

/// Look up what metrics are
///
/// Type, unit and help, as senders (remote write, OTLP, imports) and targets say them. They are kept in memory: a
/// restart forgets them until they are said again.
#[utoipa::path(get, path = "/prometheus/api/v1/metadata", operation_id = "listMetadata", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("metric" = Option<String>, Query, description = "Only this one."),
        ("limit" = Option<i64>, Query, description = "Metrics wanted."),
        ("limit_per_metric" = Option<i64>, Query, description = "Entries wanted of each."),
    ),
    responses((status = 200, description = "By metric, all that is said of it.",
        content_type = "application/json")))]
pub(super) async fn metadata(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let most = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = most(whole(&parameters, "limit")?).unwrap_or(usize::MAX);
    let per_metric = most(whole(&parameters, "limit_per_metric")?);
    let per_metric = per_metric.filter(|most| *most > 0).unwrap_or(usize::MAX);
    let metric = Some(parameters.text("metric")).filter(|metric| !metric.is_empty());
    let mut body = b"{\"status\":\"success\",\"data\":{".to_vec();
    let found = series.metadata(metric, limit, per_metric);
    for (at, (name, variants)) in found.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        append_text(name, &mut body);
        body.push(b':');
        append_list(variants, &mut body, |one, out| {
            let said = one.description();
            out.extend_from_slice(b"{\"type\":");
            append_text(said.kind.as_str(), out);
            out.extend_from_slice(b",\"unit\":");
            append_text(said.unit, out);
            out.extend_from_slice(b",\"help\":");
            append_text(said.help, out);
            out.push(b'}');
        });
    }
    body.push(b'}');
    let lacks = series.lacks_metadata().then(|| {
        let most = series.config().metadata_bytes_max;
        format!("limit series.metadata_bytes_max is {most}: what was said of further metrics is not kept")
    });
    let lacks: Vec<String> = lacks.into_iter().collect();
    append_end(&lacks, &[], &mut body);
    Ok(json(body))
}
