//! The layer that every request passes before its handler.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use egret_base::lifecycle::Failures;
use utoipa_axum::router::OpenApiRouter;

use super::Builder;
use crate::access::{Authorizer, Decision};
use crate::admit::Admission;
use crate::error::RequestError;
use crate::grpc::GrpcService;
use crate::metrics::FailedParts;
use crate::observe::{Observer, observe};
use crate::problem::Problem;
use crate::tokens::TokenError;

/// The layer before every handler: observation, admission and authorization. One layer instead of
/// three, as each costs every request some allocations.
pub(super) struct RequestLayer {
    pub(super) observer: Arc<Observer>,
    pub(super) admission: Admission,
    pub(super) gate: Authorizer,
    pub(super) failed: FailedServices,
}

/// Which service answers a route, and which of them could not start.
#[derive(Default)]
pub(super) struct FailedServices {
    pub(super) failures: Failures,
    by_route: HashMap<String, &'static str>,
    /// Services without routes: the prefix of their paths, and the name of the service.
    pub(super) absent: Vec<(&'static str, &'static str)>,
}

impl FailedServices {
    /// Registers the service that these routes belong to.
    pub(super) fn answer(&mut self, service: &'static str, routes: impl Iterator<Item = String>) {
        self.by_route.extend(routes.map(|route| (route, service)));
    }

    /// Refuses a request for a service that could not start.
    fn refuse(&self, route: Option<&MatchedPath>, path: &str) -> Option<Response> {
        if self.failures.is_empty() {
            return None;
        }
        let part = match route {
            Some(route) => *self.by_route.get(route.as_str())?,
            None => {
                let mut absent = self.absent.iter();
                absent.find(|(prefix, _)| path.starts_with(prefix))?.1
            }
        };
        let reason = self.failures.reason(part)?;
        Some(Problem::from(RequestError::PartFailed { part, reason }).into_response())
    }
}

impl Builder {
    /// Sets the services that failed to start: requests for them are refused with the reason.
    pub fn failures(mut self, failures: Failures, failed_parts: FailedParts) -> Self {
        self.deps
            .metrics
            .register_failed_parts(failed_parts.clone());
        self.failed.failures = failures;
        self.failed_parts = failed_parts;
        self
    }

    /// Adds the routes of the service `part`: when it could not start, they say why.
    pub fn route_of(mut self, part: &'static str, routes: OpenApiRouter) -> Self {
        let paths = routes.get_openapi().paths.paths.keys();
        self.failed.answer(part, paths.cloned());
        self.route(routes)
    }

    /// Refuses requests below `prefix` with the reason why the service `part`, which has no routes,
    /// could not start.
    pub fn absent(mut self, part: &'static str, prefix: &'static str) -> Self {
        self.failed.absent.push((prefix, part));
        self
    }

    /// Adds the gRPC service of the service `part`.
    pub fn grpc_of(mut self, part: &'static str, service: GrpcService) -> Self {
        let paths = service.scopes.iter().map(|(path, _)| path.clone());
        self.failed.answer(part, paths);
        self.grpc(service)
    }
}

pub(super) async fn enter(
    State(entrance): State<Arc<RequestLayer>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let RequestLayer {
        observer,
        admission,
        gate,
        failed,
    } = &*entrance;
    let route = path.clone();
    let max = admission.body_bytes_max();
    observe(observer, route, max, request, async |request, context| {
        if let Err(error) = admission.check_head(&request) {
            return Problem::from(error).into_response();
        }
        let path = path.as_ref();
        // Authorize before any quota is taken: a client without a token uses no resources of
        // others.
        let mut decision = gate.examine(path, &request, &context);
        if let Decision::Verify(text, guarded) = &decision {
            let client = context.client().map(|client| client.ip);
            // Rare: boxed, so that the future of every other request stays small.
            let token = Box::pin(gate.verify(text, client)).await;
            decision = gate.decide(guarded, &request, &context, token);
        }
        let refusal = match decision {
            Decision::Pass => failed.refuse(path, request.uri().path()),
            Decision::Refuse(refusal) => Some(refusal),
            Decision::Verify(..) => Some(Problem::from(TokenError::Invalid).into_response()),
        };
        if let Some(refusal) = refusal {
            return refusal;
        }
        admission
            .admit(request, &context, |request| next.run(request))
            .await
    })
    .await
}
