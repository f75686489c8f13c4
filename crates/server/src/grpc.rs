//! gRPC on the same port as HTTP: the health service, and those of the engines.

mod health;
mod malformed_message;
pub(crate) mod queue;
pub(crate) mod series;
mod service;
pub(crate) mod views;

pub(crate) use health::{HEALTH_ROUTE, health_router};
pub use service::GrpcService;
pub(crate) use service::{MESSAGE_BYTES_MAX, speaks_grpc};
