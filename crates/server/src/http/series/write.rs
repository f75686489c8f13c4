//! Remote write. The hot path: a body is read into one buffer, and the engine reads it where it lies.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_series::{Series, SeriesError, Written};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::Member;
use super::body::{read_snappy, taken_in};
use crate::error::RequestError;
use crate::problem::Problem;

const SAMPLES_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-samples-written");
const HISTOGRAMS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-histograms-written");
const EXEMPLARS_WRITTEN: HeaderName =
    HeaderName::from_static("x-prometheus-remote-write-exemplars-written");

/// What remote write is, as told to who sends something else.
const EXPECTED: &str = "application/x-protobuf with snappy";

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Write samples
///
/// Prometheus remote write, 1.0 and 2.0. What is acknowledged is on disk, unless `series.durability` says otherwise.
/// Of a request with bad samples the good ones are kept, and the answer says how many were not.
#[utoipa::path(post, path = "/prometheus/api/v1/write", operation_id = "remoteWrite", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:write"])),
    request_body(content = Vec<u8>, content_type = "application/x-protobuf",
        description = "A `WriteRequest`, or a `Request` of 2.0, in a block of snappy."),
    responses(
        (status = 204, description = "Everything was written; the headers of 2.0 count what was."),
        (status = 202, description = "It was dropped, as another replica of its cluster is listened to."),
        (status = 400, description = "Nothing was written, or what was good of it."),
        (status = 429, description = "There are `series.series_max` series, and all of these are new.", body = Problem,
            content_type = "application/json"),
        (status = 503, description = "Too much waits to be written: send it again.", body = Problem,
            content_type = "application/json"),
    ))]
pub(super) async fn remote_write(
    State(series): State<Series>,
    _: Member,
    request: Request,
) -> Result<Response, Problem> {
    let version = version(request.headers())?;
    let body = read_snappy(request, series.config()).await?;
    let written = taken_in(body, async move |body| match version {
        Version::One => series.remote_write_v1(&body).await,
        Version::Two => series.remote_write_v2(&body).await,
    });
    let written = written.await?;
    Ok(respond(&written, version))
}

fn respond(written: &Written, version: Version) -> Response {
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

/// What the headers say that the body is.
fn version(headers: &HeaderMap) -> Result<Version, RequestError> {
    let text = |name| {
        let value = headers.get(name).map(HeaderValue::to_str);
        value.and_then(Result::ok).unwrap_or_default()
    };
    let content_type = text(header::CONTENT_TYPE);
    let encoding = text(header::CONTENT_ENCODING);
    let refuse = || RequestError::MediaType {
        found: format!("`{content_type}` with encoding `{encoding}`"),
        expected: EXPECTED,
    };
    let mut parts = content_type.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if !essence.eq_ignore_ascii_case("application/x-protobuf") || encoding != "snappy" {
        return Err(refuse());
    }
    let message = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("proto").then_some(value)
    });
    match message {
        None | Some("prometheus.WriteRequest") => Ok(Version::One),
        Some("io.prometheus.write.v2.Request") => Ok(Version::Two),
        Some(_) => Err(refuse()),
    }
}

#[cfg(test)]
mod tests;
