//! OTLP: what OpenTelemetry's collectors and libraries send over HTTP.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_metrics_wire::otlp::OtlpEncoding;
use egret_series::Series;
use http::{HeaderValue, header};

use super::body::{process_body, read_decompressed};
use super::tenant_access::DefaultTenantAccess;
use crate::error::RequestError;
use crate::problem::Problem;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Write OpenTelemetry metrics
///
/// The body is OTLP over HTTP: protobuf or JSON, plain or compressed with gzip. Names are converted
/// to Prometheus's.
#[utoipa::path(post, path = "/prometheus/api/v1/otlp/v1/metrics", operation_id = "writeOtlp", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:write"])),
    request_body(content = Vec<u8>, content_type = "application/x-protobuf",
        description = "An `ExportMetricsServiceRequest`."),
    responses((status = 200, description = "An `ExportMetricsServiceResponse` with the number of rejected samples.")))]
pub(super) async fn write_otlp(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    request: Request,
) -> Result<Response, Problem> {
    let content_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let (encoding, kind) = match media_type.to_ascii_lowercase().as_str() {
        PROTOBUF => (OtlpEncoding::Protobuf, PROTOBUF),
        JSON => (OtlpEncoding::Json, JSON),
        _ => {
            return Err(RequestError::MediaType {
                found: format!("`{content_type}`"),
                expected: "application/x-protobuf or application/json",
            }
            .into());
        }
    };
    let body = read_decompressed(request, series.config()).await?;
    let response =
        process_body(body, async move |body| series.write_otlp(&body, encoding).await).await?;
    let kind = HeaderValue::from_static(kind);
    Ok(([(header::CONTENT_TYPE, kind)], response).into_response())
}
