//! What metrics are: type, unit and help.

use axum::extract::State;
use axum::response::Response;
use egret_promql::QueryError;
use egret_series::Series;

use super::json::{append_end, append_list, append_text, json};
use super::parameters::Parameters;
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// A whole number; `None` when it is missing.
pub(super) fn parse_integer(
    parameters: &Parameters,
    name: &str,
) -> Result<Option<i64>, QueryError> {
    match parameters.text(name) {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| QueryError::Invalid { message: format!("{name} must be a number") }),
    }
}

/// List metadata of metrics
///
/// The response has type, unit and help of metrics, as senders (remote write, OTLP, imports) and
/// targets report them. Metadata is kept in memory only: after a restart it is missing until it is
/// reported again.
#[utoipa::path(get, path = "/prometheus/api/v1/metadata", operation_id = "listMetadata", tag = "series",
    security(("token" = ["series:read"])),
    params(
        ("metric" = Option<String>, Query, description = "Return metadata of this metric only."),
        ("limit" = Option<i64>, Query, description = "Metrics wanted."),
        ("limit_per_metric" = Option<i64>, Query, description = "The maximum number of entries of each metric."),
    ),
    responses((status = 200, description = "The metadata by metric.",
        content_type = "application/json")))]
pub(super) async fn metadata(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let to_limit = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = to_limit(parse_integer(&parameters, "limit")?).unwrap_or(usize::MAX);
    let per_metric = to_limit(parse_integer(&parameters, "limit_per_metric")?)
        .filter(|most| *most > 0)
        .unwrap_or(usize::MAX);
    let metric = Some(parameters.text("metric")).filter(|metric| !metric.is_empty());
    let mut body = b"{\"status\":\"success\",\"data\":{".to_vec();
    let found = series.metadata(metric, limit, per_metric);
    for (index, (name, variants)) in found.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        append_text(name, &mut body);
        body.push(b':');
        append_list(variants, &mut body, |entry, out| {
            let description = entry.description();
            out.extend_from_slice(b"{\"type\":");
            append_text(description.kind.as_str(), out);
            out.extend_from_slice(b",\"unit\":");
            append_text(description.unit, out);
            out.extend_from_slice(b",\"help\":");
            append_text(description.help, out);
            out.push(b'}');
        });
    }
    body.push(b'}');
    let warnings: Vec<String> = series
        .has_refused_metadata()
        .then(|| {
            let bytes_max = series.config().metadata_bytes_max;
            format!(
                "limit series.metadata_bytes_max is {bytes_max}: metadata of further metrics is not kept"
            )
        })
        .into_iter()
        .collect();
    append_end(&warnings, &[], &mut body);
    Ok(json(body))
}
