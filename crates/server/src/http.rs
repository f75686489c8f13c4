//! The HTTP routes: the server's own here, each engine's in a file of its own beside them.

mod audit;
pub(crate) mod branches;
pub(crate) mod clock;
mod docs;
pub(crate) mod documents;
pub(crate) mod installations;
pub(crate) mod outboxes;
pub(crate) mod queues;
pub(crate) mod series;
mod sql_text;
pub(crate) mod state;
mod system;
mod tokens;
pub(crate) mod views;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use egret_base::settings::nearest;
use tower::Service;
use utoipa_axum::router::OpenApiRouter;

use self::state::RouterState;
use crate::error::RequestError;
use crate::problem::Problem;

pub(crate) use docs::{DOCS_ASSETS, docs_routes};

/// The routes that do not belong to an engine.
pub(crate) fn server_routes(router_state: Arc<RouterState>) -> OpenApiRouter {
    documented().with_state(router_state)
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<Arc<RouterState>> {
    OpenApiRouter::default()
        .merge(system::routes())
        .merge(audit::routes())
        .merge(tokens::routes())
        .merge(docs::documentation_routes())
}

/// Answers paths that no route has, with the most similar of the known ones.
pub(crate) fn not_found(
    documented_paths: Vec<String>,
) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let known: Arc<[String]> = documented_paths.into();
    tower::service_fn(move |request: Request| {
        let known = known.clone();
        async move {
            let path = request.uri().path();
            let nearest = nearest(path, known.iter().map(String::as_str)).map(str::to_owned);
            let path = path.chars().take(PATH_SHOWN_MAX).collect();
            Ok(Problem::from(RequestError::RouteNotFound { path, nearest }).into_response())
        }
    })
}

/// Characters of an unknown path that are repeated in the answer.
const PATH_SHOWN_MAX: usize = 200;
