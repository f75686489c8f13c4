//! `/openapi.json` and the page that renders it; the page's files are in the program.

use std::sync::Arc;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::header;
use utoipa_axum::router::OpenApiRouter;

use super::state::RouterState;

/// The page's own files, which are public.
pub(crate) const DOCS_ASSETS: [&str; 2] = ["/docs/page.css", "/docs/page.js"];

/// Nothing from elsewhere, nothing inline: the page cannot be made to send a token away.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// The OpenAPI document
///
/// This description of the API, in OpenAPI 3.1. No token is needed.
#[utoipa::path(get, path = "/openapi.json", operation_id = "getOpenApi", tag = "system", security(()),
    responses((status = 200, description = "The document.", content_type = "application/json")))]
#[expect(
    dead_code,
    reason = "only documents the route that `docs_routes` serves once the document is known"
)]
fn openapi() {}

/// The API's documentation as a page
///
/// The page lists every operation and allows to try it. No token is needed.
#[utoipa::path(get, path = "/docs", operation_id = "getDocs", tag = "system", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")))]
#[expect(dead_code, reason = "only documents the route that `docs_routes` serves")]
fn docs() {}

/// The meaning of each error code
///
/// A page in Markdown; a problem's `type` links to its sections. No token is needed.
#[utoipa::path(get, path = "/errors", operation_id = "getErrors", tag = "system", security(()),
    responses((status = 200, description = "The page.", body = String, content_type = "text/markdown")))]
#[expect(dead_code, reason = "only documents the route that `docs_routes` serves")]
fn errors() {}

/// The documentation of these routes, which cannot be served before it is complete.
pub(super) fn documentation_routes() -> OpenApiRouter<Arc<RouterState>> {
    #[derive(utoipa::OpenApi)]
    #[openapi(paths(openapi, docs, errors))]
    struct Pages;

    OpenApiRouter::with_openapi(<Pages as utoipa::OpenApi>::openapi())
}

/// The document and the page.
pub(crate) fn docs_routes(document: Bytes) -> Router {
    let document = get(move || async move {
        ([(header::CONTENT_TYPE, "application/json")], document).into_response()
    });
    let serve_file = |content_type: &'static str, text: &'static str| {
        let headers =
            [(header::CONTENT_TYPE, content_type), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
        get(move || async move { (headers, text) })
    };
    Router::new()
        .route("/openapi.json", document)
        .route("/docs", serve_file("text/html; charset=utf-8", include_str!("docs/page.html")))
        .route(
            "/errors",
            serve_file(
                "text/markdown; charset=utf-8",
                include_str!("../../../../docs/reference/errors.md"),
            ),
        )
        .route(
            "/docs/page.css",
            serve_file("text/css; charset=utf-8", include_str!("docs/page.css")),
        )
        .route(
            "/docs/page.js",
            serve_file("text/javascript; charset=utf-8", include_str!("docs/page.js")),
        )
}
