//! Extractors of requests for documents.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use egret_documents::api::{
    BatchWrite, Caller as Asking, CountMode, DocumentProjection, FindQuery, PatchFormat, WriteOp,
};
use egret_documents::core::decision::Condition;
use egret_documents::core::rights::{Reach, Rights};
use egret_documents::model::{CollectionName, DocumentId};
use http::request::Parts;
use http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::answer::parameter_error;
use super::condition::{check_syntax, parse_condition, strong_etags, weak_etags};
use crate::access::Caller;
use crate::error::RequestError;
use crate::extract::{JsonText, Query, read_body};
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::tokens::ADMIN;

/// The parameters of a request that names its database alone.
#[derive(Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DatabaseParams {
    /// The database; when absent, the only one that has collections.
    pub(super) database: Option<String>,
}

/// Caller and database of a request that has no other parameters.
pub(super) struct RequestScope(pub(super) Asking);

impl<S: Send + Sync> FromRequestParts<S> for RequestScope {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(DatabaseParams { database }) = Query::from_request_parts(parts, state).await?;
        Ok(Self(build_caller(parts, state, database).await?))
    }
}

/// Caller and database of a request whose other parameters another extractor reads.
pub(super) struct ReadScope(pub(super) Asking);

impl<S: Send + Sync> FromRequestParts<S> for ReadScope {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let database =
            query_parameters(parts).find(|(name, _)| name == "database").map(|(_, value)| value);
        Ok(Self(build_caller(parts, state, database).await?))
    }
}

async fn build_caller<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
    database: Option<String>,
) -> Result<Asking, Problem> {
    let caller = Caller::from_request_parts(parts, state).await?;
    let context = parts.extensions.get::<Arc<RequestContext>>();
    Ok(Asking {
        database,
        tenant: caller.tenant().to_owned(),
        author: Some(caller.token_id().to_owned()),
        trace: context.map(|context| context.id().to_owned()),
        rights: Arc::new(rights(&caller)),
        idempotency_key: None,
        is_relaxed: false,
    })
}

/// The caller's rights to documents, by the scopes and claims of its token.
fn rights(caller: &Caller) -> Rights {
    if caller.has_scope(ADMIN) {
        return Rights::default();
    }
    let reach = |action: &str| {
        let mut names = BTreeSet::new();
        for scope in caller.scopes() {
            let Some((area, granted)) = scope.split_once(':') else {
                continue;
            };
            if granted != action && granted != "*" {
                continue;
            }
            match area.split_once('/') {
                None if area == AREA => return Reach::All,
                Some((AREA, part)) => names.extend(part.parse::<CollectionName>().ok()),
                _ => {}
            }
        }
        Reach::Only(names)
    };
    Rights { read: reach("read"), write: reach("write"), claims: Some(caller.claims().clone()) }
}

/// The area of the scopes for documents.
const AREA: &str = "documents";

/// How documents are written.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteParams {
    /// The database; when absent, the only one that has collections.
    database: Option<String>,
    /// With `full`, the default, an acknowledged write is on disk. With `relaxed`, a crash of the
    /// server may lose the writes of the last second: for loads that can be repeated.
    #[param(inline)]
    durability: Option<Durability>,
}

#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Durability {
    Full,
    Relaxed,
}

/// Caller, database and options of a write.
pub(super) struct WriteScope(pub(super) Asking);

impl<S: Send + Sync> FromRequestParts<S> for WriteScope {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(WriteParams { database, durability }) =
            Query::from_request_parts(parts, state).await?;
        let mut caller = build_caller(parts, state, database).await?;
        caller.idempotency_key = idempotency_key(&parts.headers)?;
        caller.is_relaxed = durability == Some(Durability::Relaxed);
        Ok(Self(caller))
    }
}

/// Bytes of an idempotency key, at most.
const KEY_BYTES_MAX: usize = 255;

/// Parses `Idempotency-Key`: a quoted string of RFC 8941, or the bare text.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, RequestError> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let unquoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let key = unquoted.unwrap_or(text);
    let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_visible && (1..=KEY_BYTES_MAX).contains(&key.len()) {
        Ok(Some(key.to_owned()))
    } else {
        Err(parameter_error(
            "header",
            format!("Idempotency-Key must have 1 to {KEY_BYTES_MAX} visible characters"),
        ))
    }
}

/// The parameters behind the path's `?`, in order.
fn query_parameters(parts: &Parts) -> impl Iterator<Item = (String, String)> + use<'_> {
    let query = parts.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).into_owned()
}

/// Parses the name of a collection. Errors name `place`, the part of the request that has it.
pub(super) fn parse_collection(
    place: &'static str,
    name: &str,
) -> Result<CollectionName, RequestError> {
    name.parse().map_err(|message: String| parameter_error(place, message))
}

/// The document that a path names.
pub(super) struct DocumentPath(pub(super) CollectionName, pub(super) DocumentId);

impl<S: Send + Sync> FromRequestParts<S> for DocumentPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let crate::extract::Path((name, id)): crate::extract::Path<(String, String)> =
            crate::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(
            parse_collection("path", &name)?,
            parse_document_id(&id).map_err(|message| parameter_error("path", message))?,
        ))
    }
}

fn parse_document_id(id: &str) -> Result<DocumentId, String> {
    id.parse().map_err(|_| {
        format!(
            "`{}` is not the id of a document, which is a UUID",
            id.chars().take(100).collect::<String>()
        )
    })
}

/// The collection that a path names.
pub(super) struct CollectionPath(pub(super) CollectionName);

impl<S: Send + Sync> FromRequestParts<S> for CollectionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let crate::extract::Path(name): crate::extract::Path<String> =
            crate::extract::Path::from_request_parts(parts, state).await?;
        Ok(Self(parse_collection("path", &name)?))
    }
}

/// The preconditions in the headers of a request (RFC 9110, 13.1).
pub(super) struct Preconditions(pub(super) Condition);

impl<S: Send + Sync> FromRequestParts<S> for Preconditions {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(parse_condition(&parts.headers)?))
    }
}

/// A file of definitions.
pub(super) struct Definitions(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Definitions {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(JsonText::from_request(request, state).await?.into_bytes()))
    }
}

/// A document as it is sent.
pub(super) struct Body(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Ok(Self(JsonText::from_request(request, state).await?.into_bytes()))
    }
}

/// A patch: its kind, by the content type, and its body.
pub(super) struct DocumentPatch(pub(super) PatchFormat, pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for DocumentPatch {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let content_type = request
            .headers()
            .get(header::CONTENT_TYPE)
            .map_or("without a type", |value| value.to_str().unwrap_or("unreadable"));
        let media_type =
            content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let kind = match media_type.as_str() {
            "application/merge-patch+json" => PatchFormat::Merge,
            "application/json-patch+json" => PatchFormat::Json,
            _ => {
                let error = RequestError::MediaType {
                    found: format!("`{content_type}`"),
                    expected: "application/merge-patch+json or application/json-patch+json",
                };
                return Err(error.into());
            }
        };
        Ok(Self(kind, read_body(request).await?))
    }
}

/// The parameters of a search for documents.
pub(super) struct FindParams(pub(super) FindQuery);

impl<S: Send + Sync> FromRequestParts<S> for FindParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut query = FindQuery::default();
        for (name, value) in query_parameters(parts) {
            match name.as_str() {
                "database" => {}
                "identity" => query.identity = Some(value),
                "filter" => query.filters.push(value),
                "sort" => query.sort = Some(value),
                "cursor" => query.cursor = Some(value),
                "limit" => query.limit = Some(parse_limit(&value)?),
                "count" => query.count = parse_count_mode(&value)?,
                _ => parse_projection(&mut query.projection, &name, &value)?,
            }
        }
        Ok(Self(query))
    }
}

/// Which parts of a document to return.
pub(super) struct Projection {
    pub(super) projection: DocumentProjection,
    /// Whether to return its metadata as well.
    pub(super) meta: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Projection {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut result = Self { projection: DocumentProjection::default(), meta: false };
        for (name, value) in query_parameters(parts) {
            match (name.as_str(), value.as_str()) {
                ("database", _) => {}
                ("meta", "true") => result.meta = true,
                ("meta", "false") => result.meta = false,
                _ => parse_projection(&mut result.projection, &name, &value)?,
            }
        }
        Ok(result)
    }
}

fn parse_projection(
    shape: &mut DocumentProjection,
    name: &str,
    value: &str,
) -> Result<(), RequestError> {
    match name {
        "fields" => shape.fields.extend(parse_list(value)?),
        "embed" => shape.embed.extend(parse_list(value)?),
        _ => {
            let name: String = name.chars().take(100).collect();
            return Err(parameter_error(
                "query",
                format!("`{name}` is not a parameter of this operation, or its value is not valid"),
            ));
        }
    }
    Ok(())
}

/// Parses a list of values that are separated by commas.
fn parse_list<T: FromStr<Err = String>>(text: &str) -> Result<Vec<T>, RequestError> {
    let items = text.split(',').map(|item| item.trim().parse());
    items.collect::<Result<_, _>>().map_err(|message| parameter_error("query", message))
}

fn parse_limit(text: &str) -> Result<u32, RequestError> {
    text.parse().map_err(|_| parameter_error("query", "limit: must be a whole number of 1 or more"))
}

fn parse_count_mode(text: &str) -> Result<CountMode, RequestError> {
    match text {
        "none" => Ok(CountMode::None),
        "planned" => Ok(CountMode::Planned),
        "exact" => Ok(CountMode::Exact),
        _ => Err(parameter_error("query", "`count` must be exact, planned or none")),
    }
}

/// Writes that are done together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    /// Whether all operations are done or none. Otherwise each is done separately.
    #[serde(default)]
    pub(super) atomic: bool,
    operations: Vec<BatchOperation>,
}

/// One operation of a batch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchOperation {
    /// `upsert` writes a document by its identity, `put` replaces a document, `delete` deletes one.
    op: Op,
    /// The collection.
    collection: String,
    /// The document's id, for `put` and `delete`.
    id: Option<String>,
    /// The new content, for `upsert` and `put`.
    #[schema(value_type = Option<Object>)]
    document: Option<Box<RawValue>>,
    /// The operation is done only if the document has this version.
    if_match: Option<String>,
    /// The operation is done only if the document does not have this version; with `*`, only if it
    /// does not exist.
    if_none_match: Option<String>,
}

#[derive(Clone, Copy, Deserialize, ToSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Op {
    Upsert,
    Put,
    Delete,
}

impl Batch {
    pub(super) fn into_operations(self) -> Result<Vec<BatchWrite>, RequestError> {
        let writes = self.operations.into_iter().enumerate().map(|(index, operation)| {
            operation.into_write().map_err(|message| RequestError::JsonInvalid {
                field: format!("operations[{index}]"),
                message,
            })
        });
        writes.collect()
    }
}

impl BatchOperation {
    fn into_write(self) -> Result<BatchWrite, String> {
        let id = self.id.as_deref().map(parse_document_id).transpose()?;
        let body = self.document.map(|document| document.get().as_bytes().to_vec());
        let op = match (self.op, id, body) {
            (Op::Upsert, None, Some(body)) => WriteOp::Put(None, body),
            (Op::Put, Some(id), Some(body)) => WriteOp::Put(Some(id), body),
            (Op::Delete, Some(id), None) => WriteOp::Delete(id),
            (Op::Upsert, ..) => return Err("`upsert` needs a `document`, and no `id`".to_owned()),
            (Op::Put, ..) => return Err("`put` needs an `id` and a `document`".to_owned()),
            (Op::Delete, ..) => return Err("`delete` needs an `id`, and no `document`".to_owned()),
        };
        for tags in self.if_match.iter().chain(&self.if_none_match) {
            check_syntax(tags).map_err(|what| format!("a condition {what}"))?;
        }
        let condition = match (self.if_match.as_deref(), self.if_none_match.as_deref()) {
            (None, None) => Condition::Always,
            (Some("*"), None) => Condition::IfThere,
            (None, Some("*")) => Condition::IfNotThere,
            (Some(tags), None) => Condition::IfAt(strong_etags(tags).collect()),
            (None, Some(tags)) => Condition::IfNotAt(weak_etags(tags).collect()),
            (Some(_), Some(_)) => {
                return Err("`if_match` and `if_none_match` cannot be combined".to_owned());
            }
        };
        Ok(BatchWrite { collection: self.collection.parse()?, op, condition })
    }
}
