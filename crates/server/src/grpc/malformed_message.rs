//! Gives the statuses with which the gRPC library refuses malformed messages a code of ours.

use axum::response::Response;
use tonic::{Code, Status};

/// The same status with a code of our errors, where it is one of reading a message. Others, such as
/// that the client has gone, stay as they are.
pub(in crate::grpc) fn told(status: Status) -> Status {
    translated(&status).unwrap_or(status)
}

/// The same for an answer that consists of a status only.
pub(in crate::grpc) fn answered(response: Response) -> Response {
    let status = Status::from_header_map(response.headers());
    match status.and_then(|status| translated(&status)) {
        Some(told) => told.into_http(),
        None => response,
    }
}

fn translated(status: &Status) -> Option<Status> {
    if status.metadata().contains_key("egret-code") {
        return None;
    }
    let (code, egret_code) = match status.code() {
        Code::OutOfRange => (Code::ResourceExhausted, "payload_too_large"),
        Code::Internal => (Code::InvalidArgument, "invalid_request"),
        _ => return None,
    };
    let mut told = Status::new(code, status.message());
    for (name, value) in [("egret-code", egret_code), ("egret-retryable", "false")] {
        let value = value.parse().expect("plain ASCII");
        told.metadata_mut().insert(name, value);
    }
    Some(told)
}
