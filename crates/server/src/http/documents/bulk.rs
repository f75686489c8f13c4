//! Many documents at once, a line for each (NDJSON).

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::condition;
use egret_documents::Documents;
use egret_documents::api::{Export, Imported};
use futures_util::{Stream, stream};
use http::header;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::{Document, problem};
use super::request::{In, Reader, Writer, Writing};
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
        let kind = request.headers().get(header::CONTENT_TYPE);
        let kind = kind.map_or("without a type", |kind| {
            kind.to_str().unwrap_or("unreadable")
        });
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case(NDJSON) {
            let wrong = RequestError::MediaType {
                found: format!("`{kind}`"),
                expected: NDJSON,
            };
            return Err(wrong.into());
        }
        Ok(Self(read_body(request).await?))
    }
}

/// What became of lines.
#[derive(Serialize, ToSchema)]
pub(super) struct ImportAnswer {
    /// Documents that are new.
    created: u64,
    /// Documents with another body.
    changed: u64,
    /// Documents that were so already.
    unchanged: u64,
    /// Lines that were refused.
    refused: Vec<RefusedLine>,
    /// Which time this is that an Egret has begun to write here. Where it is another than before, lines that were sent with `durability=relaxed`
    /// before may have been lost.
    #[schema(example = 3)]
    epoch: i64,
}

/// A line that was refused.
#[derive(Serialize, ToSchema)]
struct RefusedLine {
    /// Which, from 1 on.
    #[schema(example = 17)]
    line: usize,
    /// Why.
    problem: Problem,
}

impl ImportAnswer {
    fn of(imported: Imported) -> Self {
        let refused = imported
            .refused
            .into_iter()
            .map(|(place, error)| RefusedLine {
                line: place + 1,
                problem: problem(error),
            });
        Self {
            created: imported.created,
            changed: imported.changed,
            unchanged: imported.unchanged,
            refused: refused.collect(),
            epoch: imported.epoch,
        }
    }
}

/// Import documents
///
/// Each line is a document, up to 2,000 of them: it takes the place of the one with its identity, or is a new one. A line that is refused keeps no
/// other from being done, and lines that come again change nothing. `egret document import` sends a file of any length so.
#[utoipa::path(post, path = "/v1/collections/{name}/import", operation_id = "importDocuments", tag = "documents",
    security(("token" = ["documents:write"])), params(("name" = String, Path, description = "The collection."), Writing),
    request_body(content = String, content_type = "application/x-ndjson", description = "A document on each line."),
    responses(
        (status = 200, description = "What became of the lines.", body = ImportAnswer),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "There are too many lines, or they are too long.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn import_documents(
    State(documents): State<Documents>,
    Writer(asking): Writer,
    In(collection): In,
    Lines(lines): Lines,
) -> Result<Json<ImportAnswer>, Problem> {
    let imported = documents.import(&asking, &collection, &lines).await;
    Ok(Json(ImportAnswer::of(imported.map_err(problem)?)))
}

/// What of documents is exported.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Exporting {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Whether each comes with its id, its version, when it was made and changed, and by whom.
    #[serde(default)]
    meta: bool,
}

/// Export documents
///
/// All of a collection as they are at one moment, in the order in which they were made, a line for each.
#[utoipa::path(get, path = "/v1/collections/{name}/export", operation_id = "exportDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["documents:read"])),
    params(("name" = String, Path, description = "The collection."), Exporting),
    responses(
        (status = 200, description = "The documents.", body = String, content_type = "application/x-ndjson"),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn export_documents(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    In(collection): In,
    Query(exporting): Query<Exporting>,
) -> Result<Response, Problem> {
    let export = documents.export(&asking, &collection).await;
    let export = export.map_err(problem)?;
    let body = Body::from_stream(lines(export, exporting.meta));
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

/// What comes after an error is an unfinished line, so that nobody takes a part for all.
fn lines(export: Export, meta: bool) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some(export), move |export| async move {
        let mut export = export?;
        let mut text = String::new();
        let told = match export.next().await {
            Ok(page) if page.is_empty() => return None,
            Ok(page) => page.into_iter().try_for_each(|stored| {
                match meta {
                    true => {
                        let document = Document::stored(stored)?;
                        text.push_str(&serde_json::to_string(&document).expect("it is JSON"));
                    }
                    false => text.push_str(&stored.body),
                }
                text.push('\n');
                Ok(())
            }),
            Err(error) => Err(error),
        };
        match told {
            Ok(()) => Some((Ok(text.into()), Some(export))),
            Err(error) => {
                let message = "an export was broken off";
                condition::occur(
                    "answers_broken_off",
                    "exports of documents",
                    &error,
                    message,
                );
                text.push_str("{\"error\":");
                Some((Ok(text.into()), None))
            }
        }
    })
}
