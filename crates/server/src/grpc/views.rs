//! `egret.views.v1.Views`: following views over gRPC.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use egret_proto::views::v1;
use egret_proto::views::v1::follow_response::Told;
use egret_proto::views::v1::server::views_server::SERVICE_NAME;
use egret_proto::views::v1::server::{Views, ViewsServer};
use egret_views::model::ChangePage;
use egret_views::{FollowMode, Follower, ViewRef, Views as Engine, ViewsError};
use futures_util::{Stream, stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tower::ServiceExt;

use super::malformed_message;
use super::service::GrpcService;
use crate::access::part_name;
use crate::error::RequestError;
use crate::problem::{Problem, grpc_status};
use crate::request_context::RequestContext;
use crate::tokens::{DEFAULT_TENANT, TokenError};

/// The views engine's service, for [`Builder::grpc`](crate::Builder::grpc). Streams end when
/// `stopping` is cancelled.
pub fn service(views: Engine, stopping: CancellationToken) -> GrpcService {
    let service = ViewsServer::new(ViewsService { views, stopping })
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new))
        .map_response(|response| {
            malformed_message::assign_code_to_response(response.map(axum::body::Body::new))
        });
    let follow = format!("/{SERVICE_NAME}/Follow");
    GrpcService {
        router: Router::new().route_service(&follow, service),
        scopes: vec![(follow.clone(), &["views:read"])],
        long_lived_paths: vec![follow],
    }
}

#[derive(Clone)]
struct ViewsService {
    views: Engine,
    stopping: CancellationToken,
}

/// The message of a caller, which must be of the default tenant, and whether it may begin the
/// tracking of changes.
fn authorize_follow(
    request: Request<v1::FollowRequest>,
) -> Result<(v1::FollowRequest, FollowMode), Status> {
    let context = request.extensions().get::<Arc<RequestContext>>();
    let known = context.and_then(|context| context.caller());
    let caller = known.ok_or_else(|| grpc_status(&TokenError::Missing))?;
    let name = &request.get_ref().view;
    let name = part_name("views", name);
    let allowed = caller.require_part("views", &name, &["read"]);
    allowed.map_err(|error| grpc_status(&error))?;
    let follow_mode = match caller.require_part("views", &name, &["write"]) {
        Ok(()) => FollowMode::StartRetention,
        Err(_) => FollowMode::RequireRetention,
    };
    match caller.tenant() {
        DEFAULT_TENANT => Ok((request.into_inner(), follow_mode)),
        tenant => Err(grpc_status(&RequestError::TenantWithoutViews { tenant: tenant.to_owned() })),
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Views for ViewsService {
    type FollowStream = Answers<v1::FollowResponse>;

    async fn follow(
        &self,
        request: Request<v1::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let (message, follow_mode) = authorize_follow(request)?;
        let name = message.view.parse().map_err(ViewsError::from);
        let view = ViewRef {
            database: Some(message.database).filter(|name| !name.is_empty()),
            name: name.map_err(|error| grpc_status(&error))?,
        };
        let follower = self
            .views
            .follow(&view, message.after, follow_mode)
            .await
            .map_err(|error| grpc_status(&error))?;
        let responses = follow_responses(follower, self.stopping.clone());
        Ok(Response::new(Box::pin(responses)))
    }
}

fn follow_responses(
    follower: Follower,
    stopping: CancellationToken,
) -> impl Stream<Item = Result<v1::FollowResponse, Status>> {
    let start = Some((follower, stopping, true));
    stream::unfold(start, |state| async move {
        let (mut follower, stopping, is_first) = state?;
        let event = if is_first {
            Told::Following(v1::Following {
                view: follower.view().to_owned(),
                database: follower.database().to_owned(),
                sequence: follower.sequence(),
            })
        } else {
            let next = tokio::select! {
                () = stopping.cancelled() => return Some((Err(Problem::stopping().to_grpc_status()), None)),
                next = follower.next() => next,
            };
            match next {
                Ok(page) => Told::Changes(to_changes(page)),
                Err(error) => return Some((Err(grpc_status(&error)), None)),
            }
        };
        let response = v1::FollowResponse { told: Some(event) };
        Some((Ok(response), Some((follower, stopping, false))))
    })
}

fn to_changes(page: ChangePage) -> v1::Changes {
    let rows = page.rows.into_iter().map(|row| v1::Row { weight: row.weight, json: row.content });
    v1::Changes {
        sequence: page.sequence,
        at_ms: page.at_ms,
        snapshot: page.snapshot,
        reset: page.reset.unwrap_or_default(),
        rows: rows.collect(),
        more: page.has_more,
    }
}
