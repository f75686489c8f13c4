//! What branches stand on: the volume, the templates, and whether registry and disk agree.

use axum::extract::State;
use egret_base::settings::ByteSize;
use egret_branches::Branches;
use http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{RegistryCheck, Template, TemplateList, Volume};
use super::request::VolumeRequest;
use super::run_detached;
use crate::access::Caller;
use crate::extract::{Json, Nothing};
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<Branches> {
    OpenApiRouter::default()
        .routes(routes!(get_volume, create_volume))
        .routes(routes!(list_templates, refresh_template))
        .routes(routes!(check_registry))
}

/// Get the volume
///
/// The response has the location of the source and its branches, the way copies are made, and the
/// free space.
#[utoipa::path(get, path = "/v1/volume", operation_id = "getVolume", tag = "branches",
    extensions(("x-egret-operator" = json!(true))),
    security(("token" = ["branches:read"])),
    responses((status = 200, description = "The volume.", body = Volume)))]
async fn get_volume(State(branches): State<Branches>) -> Result<Json<Volume>, Problem> {
    Ok(Json(branches.volume()?.into()))
}

/// Create a copy-on-write volume
///
/// A loop-mounted btrfs image is created, and the embedded server is moved onto it; the server is
/// stopped meanwhile. The operation is possible only if the driver is `copy` and no branch exists;
/// it needs root.
#[utoipa::path(post, path = "/v1/volume", operation_id = "createVolume", tag = "branches",
    security(("token" = ["admin"])), request_body = VolumeRequest,
    responses(
        (status = 201, description = "The volume was created and the server moved onto it.", body = Volume),
        (status = 409, description = "A volume is not needed, or branches exist.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn create_volume(
    State(branches): State<Branches>,
    Json(request): Json<VolumeRequest>,
) -> Result<(StatusCode, Json<Volume>), Problem> {
    let size = ByteSize(request.size_bytes);
    let volume = run_detached(async move { branches.create_volume(size).await }).await?;
    Ok((StatusCode::CREATED, Json(volume.into())))
}

/// List the templates
///
/// The list has the templates of the source and of the caller's own branches.
#[utoipa::path(get, path = "/v1/templates", operation_id = "listTemplates", tag = "branches",
    security(("token" = ["branches:read"])),
    responses((status = 200, description = "The templates.", body = TemplateList)))]
async fn list_templates(
    State(branches): State<Branches>,
    caller: Caller,
) -> Result<Json<TemplateList>, Problem> {
    let templates = branches.templates(caller.tenant())?;
    Ok(Json(TemplateList { items: templates.into_iter().map(Template::from).collect() }))
}

/// Create a template of the source
///
/// Branches that are created afterwards have its data.
#[utoipa::path(post, path = "/v1/templates", operation_id = "refreshTemplate", tag = "branches",
    extensions(("x-egret-operator" = json!(true))),
    security(("token" = ["branches:write"])), request_body = Option<Nothing>,
    responses(
        (status = 201, description = "The template is ready.", body = Template),
        (status = 409, description = "The source cannot be branched.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "The volume has too little free space.", body = Problem,
            content_type = "application/problem+json"),
    ))]
async fn refresh_template(
    State(branches): State<Branches>,
    _: Option<Json<Nothing>>,
) -> Result<(StatusCode, Json<Template>), Problem> {
    let template = branches.refresh_template().await?;
    let view = branches.template_view(&template, 0);
    Ok((StatusCode::CREATED, Json(view.into())))
}

/// Check the registry
///
/// The check finds directories, postmasters and sockets that do not belong to exactly one branch,
/// template or tombstone, over all tenants.
#[utoipa::path(post, path = "/v1/verify", operation_id = "checkRegistry", tag = "branches",
    security(("token" = ["admin"])), request_body = Option<Nothing>,
    responses((status = 200, description = "The result of the check.", body = RegistryCheck)))]
async fn check_registry(
    State(branches): State<Branches>,
    _: Option<Json<Nothing>>,
) -> Result<Json<RegistryCheck>, Problem> {
    Ok(Json(branches.check_registry().await?.into()))
}
