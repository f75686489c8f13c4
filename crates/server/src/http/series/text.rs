//! Imports of texts with samples, processed while they arrive: files of any size.

use axum::extract::{Request, State};
use egret_series::{Import, ImportFormat, Series};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{Decoder, Encoding};
use super::tenant_access::DefaultTenantAccess;
use crate::error::RequestError;
use crate::extract::{Json, Query, body_error};
use crate::problem::Problem;

/// Bytes of a body that are decompressed together. They may become a thousand times as much, which
/// is not counted as memory of the token: so this is about as much as an import collects of an
/// uncompressed text.
const PIECE_BYTES: usize = 1 << 10;

/// The parameters of an import.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportParams {
    /// The format of the text: `prometheus`, `openmetrics`, `csv` or `jsonl`.
    format: String,
}

/// The outcome of an import.
#[derive(Serialize, ToSchema)]
pub(super) struct Imported {
    /// The number of samples that were written, or existed already.
    #[schema(example = 78_345)]
    samples: u64,
    /// The number of these samples that are native histograms.
    #[schema(example = 0)]
    histograms: u64,
    /// The number of these samples that are older than the newest of their series.
    #[schema(example = 0)]
    late: u64,
    /// The number of samples and lines that were rejected.
    #[schema(example = 1)]
    rejected: u64,
    /// Some of the reasons.
    #[schema(example = json!(["line 17, byte 4: expected a value"]))]
    reasons: Vec<String>,
}

/// Import samples
///
/// The body is a text of any size, plain or compressed with gzip, which is processed while it
/// arrives: Prometheus's text format, OpenMetrics, CSV with the columns `time`, `metric`, `value`
/// and one for each label, or JSON with one series per line. Errors in a line are reported, and the
/// other lines are written. Importing the same text twice changes nothing.
#[utoipa::path(post, path = "/v1/series/import", operation_id = "importSeries", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true)), ("x-egret-lasting" = json!(true))),
    security(("token" = ["series:write"])), params(ImportParams),
    request_body(content = String, content_type = "text/plain", description = "The text."),
    responses((status = 200, description = "The text was read to its end.", body = Imported)))]
pub(super) async fn import(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    Query(params): Query<ImportParams>,
    request: Request,
) -> Result<Json<Imported>, Problem> {
    let format = ImportFormat::from_name(&params.format);
    let format = format.ok_or_else(|| RequestError::Parameter {
        place: "query",
        message: format!(
            "format: `{}` is not one of prometheus, openmetrics, csv, jsonl",
            params.format
        ),
    })?;
    let mut decoder = Decoder::new(Encoding::from_headers(request.headers())?);
    let mut import = Import::new(series, format);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&error))?;
        let mut rest = frame.into_data().unwrap_or_default();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            import.push(&decoder.decode(piece)?).await?;
        }
    }
    import.push(&decoder.finish()?).await?;
    let result = import.finish().await?;
    Ok(Json(Imported {
        samples: result.samples,
        histograms: result.histograms,
        late: result.late,
        rejected: result.rejected.samples,
        reasons: result.rejected.reasons,
    }))
}
