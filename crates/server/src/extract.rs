//! Extractors of handlers; what cannot be parsed becomes a [`Problem`] that names the place.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::Limit;
use egret_metrics_wire::WireError;
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::content_encoding::ContentEncoding;
use crate::error::RequestError;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// The longest time for which a refused body is drained.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body, read or written.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

/// The parameters behind the path's `?`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

/// The parameters within the path.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        check_content_type(request.headers())?;
        let bytes = read_body(request).await?;
        read_json(&bytes).map(Json).map_err(Problem::from)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> OptionalFromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Option<Self>, Problem> {
        // Without a JSON content type, the body must be empty.
        let content_type_check = check_content_type(request.headers());
        let bytes = read_body(request).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        content_type_check?;
        let value: Option<T> = read_json(&bytes)?;
        Ok(value.map(Json))
    }
}

/// A JSON body that is parsed in place: parsed values borrow from it.
#[derive(Clone, Debug)]
pub(crate) struct JsonText(Bytes);

impl JsonText {
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, RequestError> {
        read_json(&self.0)
    }

    /// The bytes of the body, not parsed yet.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Whether the value is an array.
    pub(crate) fn is_array(&self) -> bool {
        self.0.trim_ascii_start().first() == Some(&b'[')
    }
}

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        check_content_type(request.headers())?;
        Ok(Self(read_body(request).await?))
    }
}

impl<S: Send + Sync> OptionalFromRequest<S> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Option<Self>, Problem> {
        // Without a JSON content type, the body must be empty.
        let content_type_check = check_content_type(request.headers());
        let bytes = read_body(request).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        content_type_check?;
        Ok(Some(Self(bytes)))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Query(value)| Query(value))
            .map_err(|rejection| parameter_problem("query", rejection.body_text()))
    }
}

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(value)| Path(value))
            .map_err(|rejection| parameter_problem("path", rejection.body_text()))
    }
}

fn parameter_problem(place: &'static str, text: String) -> Problem {
    // axum's texts begin with a sentence of their own; ours says the same by its code.
    let message =
        text.rsplit_once("deserialize query string: ").map_or(text.as_str(), |(_, rest)| rest);
    let (name, reason) = message.rsplit_once(": ").unwrap_or(("", message));
    let message = match integer_error_message(reason) {
        Some(reason) if name.is_empty() => reason.to_owned(),
        Some(reason) => format!("{name}: {reason}"),
        None => message.to_owned(),
    };
    Problem::from(RequestError::Parameter { place, message })
}

/// Translates std's parse error of an integer into a message for the client.
fn integer_error_message(reason: &str) -> Option<&'static str> {
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("must be a whole number of 0 or more")
        }
        "number too large to fit in target type" => Some("the number is too large"),
        "number too small to fit in target type" => Some("the number is too small"),
        _ => None,
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), RequestError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("unreadable"));
    let essence = content_type.and_then(|text| text.split(';').next()).unwrap_or("").trim();
    let essence = essence.to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    Err(RequestError::ContentType {
        found: content_type.map_or("missing".to_owned(), |text| format!("`{text}`")),
    })
}

/// Reads a whole body and decompresses it as its headers say. Both sizes are bounded by
/// `server.body_bytes_max`.
pub(crate) async fn read_body(request: Request) -> Result<Bytes, RequestError> {
    let encoding = ContentEncoding::of(request.headers())?;
    let memory = BodyMemory::from_request(&request);
    // The body is bounded by the limits already; its error does not say how much they allow.
    let context = request.extensions().get::<Arc<RequestContext>>();
    let max = context.map_or(0, |context| context.body_bytes_max());
    let bytes = match request.into_body().collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if is_length_limit(&error) => return Err(RequestError::BodyTooLarge { max }),
        Err(error) => return Err(body_error(&error)),
    };
    encoding.decode(bytes, max, memory).await
}

/// Why a body could not be read to its end.
pub(crate) fn body_error(error: &axum::Error) -> RequestError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<RequestError>() {
            return error.clone();
        }
        cause = error.source();
    }
    RequestError::BodyBroken { message: egret_base::error::chain(error) }
}

/// Reads a body that has a limit of its own, counting its memory. One that comes in one piece is
/// not copied.
pub(crate) async fn read_bounded(request: Request, limit: Limit) -> Result<Bytes, Problem> {
    let memory = BodyMemory::from_request(&request);
    let mut body = request.into_body();
    let size = body.size_hint();
    if let Err(error) = limit.check(size.lower()) {
        drain(body, limit.max).await;
        return Err(WireError::from(error).into());
    }
    let mut first = Bytes::new();
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let bytes_read = if collected.is_empty() { first.len() } else { collected.len() };
        if let Err(error) = limit.check((bytes_read + data.len()) as u64) {
            drain(body, limit.max).await;
            return Err(WireError::from(error).into());
        }
        memory.reserve(data.len() as u64)?;
        if first.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        if first.is_empty() {
            first = data;
            continue;
        }
        if collected.is_empty() {
            // Memory that is not written to yet does not count: it is reserved as the body comes.
            collected.reserve(size.exact().unwrap_or_default() as usize);
            collected.extend_from_slice(&first);
        }
        collected.extend_from_slice(&data);
    }
    Ok(if collected.is_empty() { first } else { collected.into() })
}

/// The memory that a request's body may take, counted against the quotas of its token.
#[derive(Clone)]
pub(crate) struct BodyMemory(Option<Arc<RequestContext>>);

impl BodyMemory {
    /// The memory quota of a request. A request that was not admitted, as in a unit test, is not
    /// counted.
    pub(crate) fn from_request(request: &Request) -> Self {
        Self(request.extensions().get().cloned())
    }

    /// Counts so many bytes more, before they are allocated, until the request ends.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), RequestError> {
        match &self.0 {
            Some(context) => context.reserve_body(bytes),
            None => Ok(()),
        }
    }
}

/// Drains the rest of a refused body, up to the size that an accepted one may have: a connection
/// closed on unread bytes is reset, and the response is lost with it.
pub(crate) async fn drain(mut body: Body, bytes_max: u64) {
    let reading = async {
        let mut bytes_read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes_read += frame.data_ref().map_or(0, |bytes| bytes.len() as u64);
            if bytes_read > bytes_max {
                return;
            }
        }
    };
    // Ignore failures and the timeout: the response is the same.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
}

/// An object without members, for operations that take nothing: a misplaced member is an error.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Deserializes a field from its text form.
pub(crate) fn by_text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn is_length_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Reads JSON; the error names line and column, or the field.
fn read_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RequestError> {
    // Keeping the path to a field costs more than reading it: it is found when there is an error.
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(_) => read_json_with_path(bytes),
    }
}

fn read_json_with_path<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RequestError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::JsonMalformed {
            message: "it is empty: send a JSON object".to_owned(),
        });
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if !inner.is_data() {
            return RequestError::JsonMalformed { message: inner.to_string() };
        }
        if path == "." {
            return RequestError::JsonInvalid {
                field: "body".to_owned(),
                message: inner.to_string(),
            };
        }
        // The field says where; a position would only stand in the way of what is wrong.
        let position = format!(" at line {} column {}", inner.line(), inner.column());
        let text = inner.to_string();
        RequestError::JsonInvalid {
            field: path,
            message: text.strip_suffix(&position).unwrap_or(&text).to_owned(),
        }
    })?;
    reader.end().map_err(|error| RequestError::JsonMalformed { message: error.to_string() })?;
    Ok(value)
}

#[cfg(test)]
mod tests;
