//! The server: HTTP with JSON and gRPC on one port, and the PostgreSQL proxy. Every request passes
//! the same layer on its way to an engine (request id, limits, token, scope), and errors become
//! problems on the way back.
//!
//! The binary wires it: [`Server::builder`], one [`Builder::route`] per engine, then it is a
//! [`Service`](egret_base::lifecycle::Service) like every other.

mod access;
mod admit;
mod audit;
mod chunked_body;
mod config;
mod content_encoding;
mod error;
mod extract;
mod forwarded;
mod grpc;
mod http;
mod incoming_body;
mod listener;
mod metrics;
mod observe;
mod observed_body;
mod oidc;
mod openapi;
mod outgoing_body;
mod pace;
mod peer;
mod problem;
mod profile;
pub mod proxy;
mod queue;
mod quota;
mod request_context;
mod server;
mod tls;
mod token_end;
mod tokens;
mod trusted_file;
mod unread_body_guard;

pub use access::Caller;
pub use audit::AuditLog;
pub use config::ServerConfig;
pub use error::{RequestError, ServerError};
pub use extract::{Json, Path, Query};
pub use grpc::GrpcService;
pub use grpc::queue::service as queue_service;
pub use grpc::series::service as series_service;
pub use grpc::views::service as view_service;
pub use http::branches::{ProxyAddress, routes as branches_routes};
pub use http::clock::routes as clock_routes;
pub use http::documents::routes as document_routes;
pub use http::installations::routes as installation_routes;
pub use http::outboxes::routes as outbox_routes;
pub use http::queues::routes as queue_routes;
pub use http::series::routes as series_routes;
pub use http::state::{Build, ReadinessProbe, StatusSection};
pub use http::views::routes as view_routes;
pub use metrics::{Exposition, FailedParts, Metrics};
pub use observe::REQUEST_ID;
pub use oidc::{JwtRefusal, Oidc, OidcConfig, OidcOptions};
pub use openapi::SECURITY_SCHEME;
pub use problem::Problem;
pub use profile::{ProfileError, ProfileFormat};
pub use quota::ServerLimits;
pub use server::{Builder, Deps, Server};
pub use tls::{CertificateChanges, Certificates};
pub use tokens::{
    ADMIN, DEFAULT_TENANT, NewToken, Scope, ScopeError, TOKENS_MAX, Token, TokenError,
    TokenRequest, Tokens,
};
