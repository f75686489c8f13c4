//! Remote write. The hot path: a body is read into one buffer, and the engine reads it where it
//! lies.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_series::{Series, SeriesError, WriteCounts};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body::{process_body, read_snappy};
use super::tenant_access::DefaultTenantAccess;
use crate::error::RequestError;
use crate::problem::Problem;

const SAMPLES_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

const MEDIA_TYPE: &str = "application/x-protobuf";

/// The media type of remote write, for the error that a sender of another one receives.
const EXPECTED: &str = "application/x-protobuf with snappy";

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Write samples
///
/// The operation is Prometheus remote write, versions 1.0 and 2.0. Acknowledged samples are on
/// disk if `series.durability` is `fsync`, the default. If some samples are not valid, the others
/// are written, and the response has the number of rejected ones.
#[utoipa::path(post, path = "/prometheus/api/v1/write", operation_id = "remoteWrite", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:write"])),
    request_body(content = Vec<u8>, content_type = "application/x-protobuf",
        description = "A `WriteRequest`, or a `Request` of version 2.0, compressed as a snappy block."),
    responses(
        (status = 204, description = "All samples were written; the headers of version 2.0 count them."),
        (status = 202, description = "The samples were dropped, because another replica of the cluster is the elected one."),
        (status = 400, description = "The request is malformed and nothing was written, or samples were rejected and the valid ones were written."),
        (status = 429, description = "The limit `series.series_max` is reached, and all series of the request are new.", body = Problem,
            content_type = "application/json"),
        (status = 503, description = "Too many samples are queued: send the request again.", body = Problem,
            content_type = "application/json"),
    ))]
pub(super) async fn remote_write(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    request: Request,
) -> Result<Response, Problem> {
    let version = parse_version(request.headers())?;
    let body = read_snappy(request, series.config()).await?;
    let written = process_body(body, async move |body| match version {
        Version::One => series.remote_write_v1(&body).await,
        Version::Two => series.remote_write_v2(&body).await,
    })
    .await?;
    Ok(write_response(&written, version))
}

fn write_response(written: &WriteCounts, version: Version) -> Response {
    let mut response = match written.rejected.samples {
        0 if written.duplicates.samples > 0 => StatusCode::ACCEPTED.into_response(),
        0 => StatusCode::NO_CONTENT.into_response(),
        _ => {
            let error = SeriesError::Invalid {
                what: "samples",
                reason: format!("{} written; {}", written.samples, written.rejected),
            };
            Problem::from(error).into_response()
        }
    };
    if version == Version::Two {
        let headers = response.headers_mut();
        // A sender takes what is not counted for lost. What another replica has written is not.
        let samples = written.samples + written.duplicates.samples;
        let histograms = written.histograms + written.duplicates.histograms;
        headers.insert(SAMPLES_WRITTEN, (samples - histograms).into());
        headers.insert(HISTOGRAMS_WRITTEN, histograms.into());
        // They are not kept.
        headers.insert(EXEMPLARS_WRITTEN, HeaderValue::from_static("0"));
    }
    response
}

/// The version of the protocol that the headers declare. Early senders of version 1.0 declare
/// neither message nor compression, and are understood as Prometheus understands them.
fn parse_version(headers: &HeaderMap) -> Result<Version, RequestError> {
    let header_text = |name, default| match headers.get(name) {
        Some(value) if !value.is_empty() => value.to_str().unwrap_or_default(),
        _ => default,
    };
    let content_type = header_text(header::CONTENT_TYPE, MEDIA_TYPE);
    let encoding = header_text(header::CONTENT_ENCODING, "snappy");
    let media_type_error = || RequestError::MediaType {
        found: format!("`{content_type}` with encoding `{encoding}`"),
        expected: EXPECTED,
    };
    let mut parts = content_type.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !media_type.eq_ignore_ascii_case(MEDIA_TYPE) || encoding != "snappy" {
        return Err(media_type_error());
    }
    let message = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("proto").then_some(value)
    });
    match message {
        None | Some("prometheus.WriteRequest") => Ok(Version::One),
        Some("io.prometheus.write.v2.Request") => Ok(Version::Two),
        Some(_) => Err(media_type_error()),
    }
}

#[cfg(test)]
mod tests;
