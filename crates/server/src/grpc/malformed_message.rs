//! Adds Egret's error codes to the statuses with which the gRPC library refuses malformed messages.

use axum::response::Response;
use tonic::{Code, Status};

/// Adds Egret's error code to a status that reports a malformed message. Other statuses, such as
/// that of a disconnected client, are unchanged.
pub(in crate::grpc) fn assign_code(status: Status) -> Status {
    translate(&status).unwrap_or(status)
}

/// Adds the error code to a response that consists of a status only.
pub(in crate::grpc) fn assign_code_to_response(response: Response) -> Response {
    let status = Status::from_header_map(response.headers());
    match status.and_then(|status| translate(&status)) {
        Some(told) => told.into_http(),
        None => response,
    }
}

fn translate(status: &Status) -> Option<Status> {
    if status.metadata().contains_key("egret-code") {
        return None;
    }
    let (code, egret_code) = match status.code() {
        Code::OutOfRange => (Code::ResourceExhausted, "payload_too_large"),
        Code::Internal => (Code::InvalidArgument, "invalid_request"),
        _ => return None,
    };
    let mut translation = Status::new(code, status.message());
    for (name, value) in [("egret-code", egret_code), ("egret-retryable", "false")] {
        let value = value.parse().expect("plain ASCII");
        translation.metadata_mut().insert(name, value);
    }
    Some(translation)
}
