//! `grpc.health.v1.Health` on the same port as HTTP; its answer follows `/readyz`.
//!
//! The service named "" is the whole program; every service of the stack can be asked by name.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use egret_base::lifecycle::Readiness;
use futures_util::Stream;
use futures_util::stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower::ServiceExt;

use crate::http::state::RouterState;

/// The route of the health service, open to all like `/readyz`.
pub(crate) const HEALTH_ROUTE: &str = "/grpc.health.v1.Health/{*rest}";

/// How often a watched status is looked at.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The health service as an axum router.
pub(crate) fn health_router(state: Arc<RouterState>, stopping: CancellationToken) -> Router {
    let probe = Probe { state, stopping };
    let service = HealthServer::new(probe)
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new));
    Router::new().route_service(HEALTH_ROUTE, service)
}

#[derive(Clone)]
struct Probe {
    state: Arc<RouterState>,
    stopping: CancellationToken,
}

impl Probe {
    fn status(&self, service: &str) -> ServingStatus {
        let readiness = self.state.readiness();
        let mut selected =
            readiness.iter().filter(|(name, _)| service.is_empty() || *name == service).peekable();
        if selected.peek().is_none() {
            return ServingStatus::ServiceUnknown;
        }
        if selected.all(|(_, readiness)| *readiness == Readiness::Ready) {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        }
    }

    /// Waits until the status differs from `last`; `None` when the server has stopped.
    async fn await_status_change(
        &self,
        service: &str,
        last: Option<ServingStatus>,
    ) -> Option<ServingStatus> {
        if last.is_some() && self.stopping.is_cancelled() {
            return None;
        }
        loop {
            let status = self.status(service);
            if last != Some(status) {
                return Some(status);
            }
            tokio::select! {
                () = self.stopping.cancelled() => return None,
                () = tokio::time::sleep(WATCH_INTERVAL) => {}
            }
        }
    }
}

#[tonic::async_trait]
impl Health for Probe {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        match self.status(&service) {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("there is no service `{service}`")))
            }
            status => Ok(Response::new(health_response(status))),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let start = (self.clone(), request.into_inner().service, None);
        let statuses = stream::unfold(start, |(probe, service, last)| async move {
            let status = probe.await_status_change(&service, last).await?;
            Some((Ok(health_response(status)), (probe, service, Some(status))))
        });
        Ok(Response::new(Box::pin(statuses)))
    }
}

fn health_response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
