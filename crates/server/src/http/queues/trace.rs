//! The trace that a request is part of, by its headers (W3C Trace Context).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

/// The length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;

/// The length of a `tracestate` that all implementations must pass on.
const TRACESTATE_BYTES_MAX: usize = 512;

/// `traceparent` and `tracestate`; what is not well-formed counts as absent, as the standard asks.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceContext {
    traceparent: Option<http::HeaderValue>,
    tracestate: Option<http::HeaderValue>,
}

impl TraceContext {
    /// Both as texts, empty where there is none.
    pub(super) fn header_values(&self) -> (&str, &str) {
        let parent = self.traceparent.as_ref().and_then(|value| value.to_str().ok());
        match parent {
            Some(parent) => {
                let state = self.tracestate.as_ref().and_then(|value| value.to_str().ok());
                (parent, state.unwrap_or_default())
            }
            None => ("", ""),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for TraceContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let parent = parts.headers.get("traceparent");
        let Some(parent) = parent.filter(|value| is_traceparent(value.as_bytes())) else {
            return Ok(Self::default());
        };
        let state =
            parts.headers.get("tracestate").filter(|value| value.len() <= TRACESTATE_BYTES_MAX);
        Ok(Self { traceparent: Some(parent.clone()), tracestate: state.cloned() })
    }
}

/// Whether a text has the form `00-<32 digits>-<16 digits>-<2 digits>`.
fn is_traceparent(text: &[u8]) -> bool {
    let dash = |at: usize| matches!(at, 2 | 35 | 52);
    let is_valid = |(at, byte): (usize, &u8)| {
        if dash(at) { *byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') }
    };
    text.len() == TRACEPARENT_BYTES && text.iter().enumerate().all(is_valid)
}
