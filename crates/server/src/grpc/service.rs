//! What the gRPC services have in common.

use axum::Router;
use http::{HeaderMap, header};

/// The largest message that is read, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// An engine's gRPC service: its router, and what each of its calls needs of a caller's token.
pub struct GrpcService {
    pub(crate) router: Router,
    /// The scopes of each call's path, of which a caller has one.
    pub(crate) scopes: Vec<(String, &'static [&'static str])>,
    /// Paths of the calls that last as long as their clients want.
    pub(crate) long_lived_paths: Vec<String>,
}

/// Whether a request speaks gRPC.
pub(crate) fn speaks_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
