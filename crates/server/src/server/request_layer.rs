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
    pub(super) authorizer: Authorizer,
    pub(super) failed_services: FailedServices,
}

/// Which service answers a route, and which of them could not start.
#[derive(Default)]
pub(super) struct FailedServices {
    pub(super) failures: Failures,
    services_by_route: HashMap<String, &'static str>,
    /// Services without routes: the prefix of their paths, and the name of the service.
    pub(super) services_by_prefix: Vec<(&'static str, &'static str)>,
}

impl FailedServices {
    /// Registers the service that these routes belong to.
    pub(super) fn register_routes(
        &mut self,
        service: &'static str,
        routes: impl Iterator<Item = String>,
    ) {
        self.services_by_route.extend(routes.map(|route| (route, service)));
    }

    /// Refuses a request for a service that could not start.
    fn refuse_if_failed(&self, route: Option<&MatchedPath>, path: &str) -> Option<Response> {
        if self.failures.is_empty() {
            return None;
        }
        let part = match route {
            Some(route) => *self.services_by_route.get(route.as_str())?,
            None => {
                let mut prefixes = self.services_by_prefix.iter();
                prefixes.find(|(prefix, _)| path.starts_with(prefix))?.1
            }
        };
        let reason = self.failures.reason(part)?;
        Some(Problem::from(RequestError::PartFailed { part, reason }).into_response())
    }
}

impl Builder {
    /// Sets the services that failed to start: requests for them are refused with the reason.
    pub fn failures(mut self, failures: Failures, failed_parts: FailedParts) -> Self {
        self.deps.metrics.register_failed_parts(failed_parts.clone());
        self.failed_services.failures = failures;
        self.failed_parts = failed_parts;
        self
    }

    /// Adds the routes of the service `part`: when it could not start, they say why.
    pub fn route_of_service(mut self, part: &'static str, routes: OpenApiRouter) -> Self {
        let paths = routes.get_openapi().paths.paths.keys();
        self.failed_services.register_routes(part, paths.cloned());
        self.route(routes)
    }

    /// Refuses requests below `prefix` with the reason why the service `part`, which has no routes,
    /// could not start.
    pub fn refuse_prefix(mut self, part: &'static str, prefix: &'static str) -> Self {
        self.failed_services.services_by_prefix.push((prefix, part));
        self
    }

    /// Adds the gRPC service of the service `part`.
    pub fn grpc_of_service(mut self, part: &'static str, service: GrpcService) -> Self {
        let paths = service.scopes.iter().map(|(path, _)| path.clone());
        self.failed_services.register_routes(part, paths);
        self.grpc(service)
    }
}

pub(super) async fn run_request_layer(
    State(layer): State<Arc<RequestLayer>>,
    path: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let RequestLayer { observer, admission, authorizer, failed_services } = &*layer;
    let route = path.clone();
    let body_bytes_max = admission.body_bytes_max();
    observe(observer, route, body_bytes_max, request, async |request, context| {
        if let Err(error) = admission.check_head(&request) {
            return Problem::from(error).into_response();
        }
        let path = path.as_ref();
        // Authorize before any quota is taken: a client without a token uses no resources of
        // others.
        let mut decision = authorizer.authorize(path, &request, &context);
        if let Decision::Verify(token_text, access) = &decision {
            let client = context.client().map(|client| client.ip);
            // Rare: boxed, so that the future of every other request stays small.
            let token = Box::pin(authorizer.verify(token_text, client)).await;
            decision = authorizer.decide_with_token(access, &request, &context, token);
        }
        let refusal = match decision {
            Decision::Pass => failed_services.refuse_if_failed(path, request.uri().path()),
            Decision::Refuse(refusal) => Some(refusal),
            Decision::Verify(..) => Some(Problem::from(TokenError::Invalid).into_response()),
        };
        if let Some(refusal) = refusal {
            return refusal;
        }
        admission.admit(request, &context, |request| next.run(request)).await
    })
    .await
}
