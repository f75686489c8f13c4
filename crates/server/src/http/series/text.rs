//! Texts with samples, taken in while they come: files of any size.

use axum::extract::{Request, State};
use egret_series::{Import, ImportFormat, Series};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Member;
use super::body::{Decoder, Encoding};
use crate::error::RequestError;
use crate::extract::{Json, Query, body_failure};
use crate::problem::Problem;

/// So much of a body is decompressed together. It may become a thousand times as much, which is not counted as memory
/// of the token: so it is about as much as an import collects of a text that is not compressed.
const PIECE_BYTES: usize = 1 << 10;

/// What the text is.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Described {
    /// `prometheus`, `openmetrics`, `csv` or `jsonl`.
    format: String,
}

/// What became of the samples.
#[derive(Serialize, ToSchema)]
pub(super) struct Imported {
    /// Samples that were written, or were there already.
    #[schema(example = 78_345)]
    samples: u64,
    /// Of these, those older than the newest of their series.
    #[schema(example = 0)]
    late: u64,
    /// Samples and lines that were refused.
    #[schema(example = 1)]
    rejected: u64,
    /// Why, some of it.
    #[schema(example = json!(["line 17, byte 4: a value is expected"]))]
    reasons: Vec<String>,
}

/// Import samples
///
/// Texts of any size, plain or in gzip, taken in while they come: Prometheus's text format, OpenMetrics, CSV with the
/// columns `time`, `metric`, `value` and one for each label, or JSON with a series a line. What is wrong with a line
/// is told and the others are kept. Importing something twice changes nothing.
#[utoipa::path(post, path = "/v1/series/import", operation_id = "importSeries", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true)), ("x-egret-lasting" = json!(true))),
    security(("token" = ["series:write"])), params(Described),
    request_body(content = String, content_type = "text/plain", description = "The text."),
    responses((status = 200, description = "It was read to its end.", body = Imported)))]
pub(super) async fn import(
    State(series): State<Series>,
    _: Member,
    Query(described): Query<Described>,
    request: Request,
) -> Result<Json<Imported>, Problem> {
    let format = ImportFormat::from_name(&described.format);
    let format = format.ok_or_else(|| RequestError::Parameter {
        place: "query",
        message: format!(
            "format: `{}` is none of prometheus, openmetrics, csv, jsonl",
            described.format
        ),
    })?;
    let mut decoder = Decoder::new(Encoding::of(request.headers())?);
    let mut import = Import::new(series, format);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_failure(&error))?;
        let mut rest = frame.into_data().unwrap_or_default();
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            import.push(&decoder.decode(piece)?).await?;
        }
    }
    import.push(&decoder.finish()?).await?;
    let written = import.finish().await?;
    Ok(Json(Imported {
        samples: written.samples,
        late: written.late,
        rejected: written.rejected.samples,
        reasons: written.rejected.reasons,
    }))
}
