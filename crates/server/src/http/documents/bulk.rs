//! Many documents at once, a line for each (NDJSON).

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::condition;
use egret_documents::Documents;
use egret_documents::api::{Export, ImportResult};
use futures_util::{Stream, stream};
use http::header;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Document, to_problem};
use super::request::{CollectionPath, ReadScope, WriteParams, WriteScope};
use crate::error::RequestError;
use crate::extract::{Json, Query, read_body};
use crate::problem::Problem;

/// A line for each document.
const NDJSON: &str = "application/x-ndjson";

/// Lines as they are sent.
pub(super) struct Lines(Bytes);

impl<S: Send + Sync> FromRequest<S> for Lines {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let kind =
            content_type.map_or("without a type", |kind| kind.to_str().unwrap_or("unreadable"));
        let media_type = kind.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(NDJSON) {
            let error = RequestError::MediaType { found: format!("`{kind}`"), expected: NDJSON };
            return Err(error.into());
        }
        Ok(Self(read_body(request).await?))
    }
}

/// The outcome of an import.
#[derive(Serialize, ToSchema)]
pub(super) struct ImportAnswer {
    /// The number of documents that were created.
    created: u64,
    /// The number of documents whose content changed.
    changed: u64,
    /// The number of documents that already had this content.
    unchanged: u64,
    /// The lines that were rejected.
    refused: Vec<RefusedLine>,
    /// A number that grows each time an Egret starts to write in this database. If it differs from
    /// the previous response, earlier lines with `durability=relaxed` may have been lost.
    #[schema(example = 3)]
    epoch: i64,
}

/// A line that was rejected.
#[derive(Serialize, ToSchema)]
struct RefusedLine {
    /// The number of the line, from 1.
    #[schema(example = 17)]
    line: usize,
    /// Why the line was rejected.
    problem: Problem,
}

impl ImportAnswer {
    fn from_result(result: ImportResult) -> Self {
        let refused = result
            .rejected
            .into_iter()
            .map(|(index, error)| RefusedLine { line: index + 1, problem: to_problem(error) });
        Self {
            created: result.created,
            changed: result.changed,
            unchanged: result.unchanged,
            refused: refused.collect(),
            epoch: result.epoch.0,
        }
    }
}

/// Import documents
///
/// Each of up to 2,000 lines is a document. It replaces the document with the same identity, or is
/// created. A rejected line does not affect the others, and lines that are sent again change
/// nothing. `egret document import` sends a file of any length in this way.
#[utoipa::path(post, path = "/v1/collections/{name}/import", operation_id = "importDocuments", tag = "documents",
    security(("token" = ["documents:write"])), params(("name" = String, Path, description = "The collection."), WriteParams),
    request_body(content = String, content_type = "application/x-ndjson", description = "One document per line."),
    responses(
        (status = 200, description = "The outcome of the lines.", body = ImportAnswer),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The request has too many lines, or too long ones.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn import_documents(
    State(documents): State<Documents>,
    WriteScope(caller): WriteScope,
    CollectionPath(collection): CollectionPath,
    Lines(lines): Lines,
) -> Result<Json<ImportAnswer>, Problem> {
    let imported = documents.import(&caller, &collection, &lines).await;
    Ok(Json(ImportAnswer::from_result(imported.map_err(to_problem)?)))
}

/// The parameters of an export.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportParams {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Whether to export each document with its id, its version, and the time and author of its
    /// creation and last change.
    #[serde(default)]
    meta: bool,
}

/// Export documents
///
/// All documents of a collection are returned from one snapshot, in the order of their creation,
/// one per line.
#[utoipa::path(get, path = "/v1/collections/{name}/export", operation_id = "exportDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["documents:read"])),
    params(("name" = String, Path, description = "The collection."), ExportParams),
    responses(
        (status = 200, description = "The documents.", body = String, content_type = "application/x-ndjson"),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn export_documents(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    CollectionPath(collection): CollectionPath,
    Query(params): Query<ExportParams>,
) -> Result<Response, Problem> {
    let export = documents.export(&caller, &collection).await.map_err(to_problem)?;
    let body = Body::from_stream(export_lines(export, params.meta));
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

/// The lines of an export. After an error the last line is unfinished, so that clients do not take
/// a part for the whole.
fn export_lines(export: Export, meta: bool) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some(export), move |export| async move {
        let mut export = export?;
        let mut text = String::new();
        let result = match export.next().await {
            Ok(page) if page.is_empty() => return None,
            Ok(page) => page.into_iter().try_for_each(|stored| {
                if meta {
                    let document = Document::from_stored(stored)?;
                    text.push_str(
                        &serde_json::to_string(&document)
                            .expect("a document can be written as JSON"),
                    );
                } else {
                    text.push_str(&stored.body)
                }
                text.push('\n');
                Ok(())
            }),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => Some((Ok(text.into()), Some(export))),
            Err(error) => {
                let message = "an export was aborted";
                condition::occur("answers_broken_off", "exports of documents", &error, message);
                text.push_str("{\"error\":");
                Some((Ok(text.into()), None))
            }
        }
    })
}
