//! Errors of building and starting the server, and reasons to refuse a request.

use std::net::SocketAddr;
use std::path::PathBuf;

use egret_base::{CodedError, Kind};

/// Why the server cannot be built or started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A setting cannot be used.
    #[error("{setting}: {message}")]
    Setting {
        /// The setting, as `section.name`.
        setting: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// The port is taken.
    #[error(
        "{address} is in use by another program: stop it, or set server.port (EGRET_SERVER_PORT)"
    )]
    PortTaken {
        /// Where the server wanted to listen.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}: check server.address and server.port")]
    Listen {
        /// Where the server wanted to listen.
        address: SocketAddr,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A TLS file cannot be read or does not hold what it should.
    #[error("{setting} {path}: {message}")]
    Tls {
        /// The setting that names the file.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A file that a setting names cannot be used.
    #[error("{setting} {path}: {message}")]
    SettingFile {
        /// The setting that names the file.
        setting: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The thread of the audit log cannot be started.
    #[error("cannot start the audit log: {source}")]
    AuditLog {
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A documented route asks for a scope that no engine has announced to the token store.
    #[error("{operation} needs the scope `{scope}`, which the token store does not know")]
    UnknownScope {
        /// Method and path of the route.
        operation: String,
        /// The scope that is not known.
        scope: String,
    },
}

impl CodedError for ServerError {
    fn code(&self) -> &'static str {
        match self {
            ServerError::Setting { .. } => "setting_invalid",
            ServerError::PortTaken { .. } => "port_taken",
            ServerError::Listen { .. } => "listen_failed",
            ServerError::Tls { .. } => "tls_file_invalid",
            ServerError::SettingFile { .. } => "setting_file_invalid",
            ServerError::AuditLog { .. } => "audit_log",
            ServerError::UnknownScope { .. } => "scope_unknown",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            ServerError::PortTaken { .. } | ServerError::Listen { .. } => Kind::Unavailable,
            ServerError::UnknownScope { .. } | ServerError::AuditLog { .. } => Kind::Internal,
            ServerError::Setting { .. }
            | ServerError::SettingFile { .. }
            | ServerError::Tls { .. } => Kind::Invalid,
        }
    }
}

/// Why a request is refused before an engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The part that answers could not start.
    #[error("{part} has failed: {reason}; the operator finds the remedy with `egret status`")]
    PartFailed {
        /// Name of the service that failed.
        part: &'static str,
        /// Why it could not start.
        reason: String,
    },
    /// The request's head is too large.
    #[error(
        "the request's head has {asked} {unit}, but {limit} is {max}: send less or raise the setting"
    )]
    HeadTooLarge {
        /// Name of the limit, mostly a setting.
        limit: &'static str,
        /// The largest value allowed.
        max: u64,
        /// What the request has.
        asked: u64,
        /// Unit of `max` and `asked`.
        unit: &'static str,
    },
    /// The request's body is too large.
    #[error(
        "the request's body is larger than server.body_bytes_max, which is {max} bytes: send less or raise the setting"
    )]
    BodyTooLarge {
        /// The largest size allowed, in bytes.
        max: u64,
    },
    /// Too many requests are at work.
    #[error("{limit} is {max} and as many requests are in progress: try again in a moment")]
    Busy {
        /// Name of the limit, mostly a setting.
        limit: &'static str,
        /// The largest number allowed.
        max: u64,
    },
    /// One tenant or one token has as much in progress as it may.
    #[error("{limit} is {max} and as many are in progress: try again in a moment")]
    QuotaExceeded {
        /// Name of the limit, mostly a setting.
        limit: &'static str,
        /// The largest number allowed.
        max: u64,
    },
    /// The bodies of requests in progress take as much memory as they may.
    #[error(
        "{limit} is {max} bytes, and request bodies in progress use too much of it: try again in a moment"
    )]
    BodyMemory {
        /// Name of the limit, mostly a setting.
        limit: &'static str,
        /// The largest size allowed, in bytes.
        max: u64,
    },
    /// The client sends its body too slowly.
    #[error(
        "the body arrived slower than server.transfer_rate_min for longer than server.transfer_timeout"
    )]
    BodyTooSlow,
    /// The handler took too long.
    #[error("the request took longer than server.request_timeout, which is {timeout_ms} ms")]
    TimedOut {
        /// The time allowed, in milliseconds.
        timeout_ms: u64,
    },
    /// No route has this path.
    #[error("there is no {path}{}: /docs lists every route", suggestion(.nearest))]
    RouteNotFound {
        /// The path asked for.
        path: String,
        /// A documented path much like it.
        nearest: Option<String>,
    },
    /// The route does not have this method.
    #[error("{path} does not take {method}: it takes {allowed}")]
    MethodNotAllowed {
        /// The method asked for.
        method: String,
        /// Path of the request.
        path: String,
        /// The methods it has.
        allowed: String,
    },
    /// The body has the wrong content type.
    #[error(
        "the content type is {found}, but this route reads application/json: set the Content-Type header"
    )]
    ContentType {
        /// The content type that was sent.
        found: String,
    },
    /// The body is not what this route reads.
    #[error(
        "the body is {found}, but this route reads {expected}: set the headers Content-Type and Content-Encoding"
    )]
    MediaType {
        /// What was sent, in the words of its headers.
        found: String,
        /// The media types that the route reads.
        expected: &'static str,
    },
    /// The body has a content encoding that is not supported.
    #[error(
        "the header Content-Encoding is `{found}`, but bodies are read without an encoding or with \
         one of gzip and zstd"
    )]
    ContentEncoding {
        /// The encoding that was sent.
        found: String,
    },
    /// The body cannot be decompressed.
    #[error("the body is not {encoding}, which the header Content-Encoding says: {message}")]
    BodyNotDecoded {
        /// The content encoding of the body.
        encoding: &'static str,
        /// Cause of the failure, as text.
        message: String,
    },
    /// Only the default tenant has series.
    #[error(
        "the token belongs to tenant `{tenant}`, which has no series: use a token of the default tenant"
    )]
    TenantWithoutSeries {
        /// Tenant of the request's token.
        tenant: String,
    },
    /// Only the default tenant has views.
    #[error(
        "the token belongs to tenant `{tenant}`, which has no views: use a token of the default tenant"
    )]
    TenantWithoutViews {
        /// Tenant of the request's token.
        tenant: String,
    },
    /// The body is no JSON.
    #[error("the body is not JSON: {message}")]
    JsonMalformed {
        /// What and where, by line and column.
        message: String,
    },
    /// The body is JSON of the wrong shape.
    #[error("the body does not fit: {field}: {message}")]
    JsonInvalid {
        /// Path to the field, e.g. `scopes[1]`; `body` for the whole.
        field: String,
        /// What is wrong there.
        message: String,
    },
    /// The body broke off.
    #[error("the body could not be read: {message}")]
    BodyBroken {
        /// Cause of the failure, as text.
        message: String,
    },
    /// A parameter of the path or query cannot be read.
    #[error("{place}: {message}")]
    Parameter {
        /// Part of the request: `query`, `path` or `header`.
        place: &'static str,
        /// Description of the error.
        message: String,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|path| format!(": did you mean {path}?")).unwrap_or_default()
}

impl CodedError for RequestError {
    fn code(&self) -> &'static str {
        match self {
            RequestError::PartFailed { .. } => "part_failed",
            RequestError::HeadTooLarge { .. } => "head_too_large",
            RequestError::BodyTooLarge { .. } => "body_too_large",
            RequestError::Busy { .. } => "server_busy",
            RequestError::QuotaExceeded { .. } => "quota_exceeded",
            RequestError::BodyMemory { .. } => "body_memory_exhausted",
            RequestError::BodyTooSlow => "body_too_slow",
            RequestError::TimedOut { .. } => "request_timed_out",
            RequestError::RouteNotFound { .. } => "route_not_found",
            RequestError::MethodNotAllowed { .. } => "method_not_allowed",
            RequestError::ContentType { .. } | RequestError::MediaType { .. } => {
                "content_type_unsupported"
            }
            RequestError::ContentEncoding { .. } => "content_encoding_unsupported",
            RequestError::TenantWithoutSeries { .. } => "tenant_without_series",
            RequestError::TenantWithoutViews { .. } => "tenant_without_views",
            RequestError::JsonMalformed { .. } => "json_malformed",
            RequestError::JsonInvalid { .. } => "json_invalid",
            RequestError::BodyBroken { .. } | RequestError::BodyNotDecoded { .. } => "body_broken",
            RequestError::Parameter { .. } => "parameter_invalid",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            RequestError::HeadTooLarge { .. } | RequestError::BodyTooLarge { .. } => Kind::TooLarge,
            RequestError::Busy { .. }
            | RequestError::BodyMemory { .. }
            | RequestError::PartFailed { .. } => Kind::Unavailable,
            RequestError::QuotaExceeded { .. } => Kind::LimitReached,
            RequestError::TimedOut { .. } | RequestError::BodyTooSlow => Kind::TimedOut,
            RequestError::RouteNotFound { .. } => Kind::NotFound,
            RequestError::TenantWithoutSeries { .. } | RequestError::TenantWithoutViews { .. } => {
                Kind::Denied
            }
            RequestError::MethodNotAllowed { .. }
            | RequestError::ContentType { .. }
            | RequestError::MediaType { .. }
            | RequestError::ContentEncoding { .. }
            | RequestError::BodyNotDecoded { .. }
            | RequestError::JsonMalformed { .. }
            | RequestError::JsonInvalid { .. }
            | RequestError::BodyBroken { .. }
            | RequestError::Parameter { .. } => Kind::Invalid,
        }
    }
}
