//! Responses of documents and collections, as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use egret_base::{CodedError, Timestamp, condition};
use egret_documents::DocumentsError;
use egret_documents::StoredDocument;
use egret_documents::api::{
    BatchRejection, CollectionSummary, DeclarationOutcome, DeclarationResult, FindPage,
    FindPageItem, ReferringDocuments,
};
use egret_documents::model::{CollectionName, DocumentId, Etag, WriteOutcome, WriteReceipt};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::error::RequestError;
use crate::problem::Problem;

/// The outcome of applying definitions.
#[derive(Serialize, ToSchema)]
pub(super) struct AppliedList {
    items: Vec<AppliedCollection>,
}

/// The outcome of applying one definition.
#[derive(Serialize, ToSchema)]
struct AppliedCollection {
    /// The collection.
    #[schema(example = "flights")]
    collection: String,
    /// `created`, `changed` or `unchanged`.
    #[schema(example = "created")]
    outcome: &'static str,
    /// What in its schema is probably not meant as it is written, such as a misspelt keyword. The
    /// definition was applied nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<DefinitionWarning>,
}

/// Something in a schema that is probably not meant as it is written.
#[derive(Serialize, ToSchema)]
struct DefinitionWarning {
    /// JSON pointer of the place in the file of definitions.
    #[schema(example = "/schema/requierd")]
    pointer: String,
    /// What has no effect there, and what may be meant.
    #[schema(example = "`requierd` is not a keyword and checks nothing: is `required` meant?")]
    message: String,
}

impl AppliedList {
    pub(super) fn from_results(results: Vec<DeclarationResult>) -> Self {
        let items = results.into_iter().map(|result| AppliedCollection {
            collection: result.collection.to_string(),
            outcome: match result.outcome {
                DeclarationOutcome::Created => "created",
                DeclarationOutcome::Changed => "changed",
                DeclarationOutcome::Unchanged => "unchanged",
            },
            warnings: result
                .warnings
                .into_iter()
                .map(|warning| DefinitionWarning {
                    pointer: warning.pointer,
                    message: warning.message,
                })
                .collect(),
        });
        Self { items: items.collect() }
    }
}

/// A collection.
#[derive(Serialize, ToSchema)]
pub(super) struct Collection {
    /// Its name.
    #[schema(example = "flights")]
    collection: String,
    /// The version of the definition, from 1.
    #[schema(example = 1)]
    version: i32,
    /// When it was first declared, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last changed, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    changed_at: Timestamp,
    /// The definition, as it was declared.
    #[schema(value_type = Object)]
    definition: Value,
}

impl Collection {
    pub(super) fn from_summary(summary: CollectionSummary) -> Self {
        Self {
            collection: summary.collection.to_string(),
            version: summary.version,
            created_at: to_timestamp(summary.created_at),
            changed_at: to_timestamp(summary.changed_at),
            definition: summary.definition,
        }
    }
}

/// The collections, by name.
#[derive(Serialize, ToSchema)]
pub(super) struct CollectionList {
    pub(super) items: Vec<Collection>,
}

pub(super) fn to_timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The document that was written.
#[derive(Serialize, ToSchema)]
pub(super) struct WrittenDocument {
    /// Its id.
    #[schema(example = "0193b2a7-3f6e-7cc1-b0d5-0a2f6f6f7a11")]
    pub(super) id: String,
}

/// The status of the response to a write.
pub(super) fn write_status(written: &WriteReceipt) -> StatusCode {
    match written.outcome {
        WriteOutcome::Created => StatusCode::CREATED,
        WriteOutcome::Changed | WriteOutcome::Unchanged => StatusCode::OK,
        WriteOutcome::Removed => StatusCode::NO_CONTENT,
    }
}

pub(super) fn etag_header(written: &WriteReceipt) -> (HeaderName, HeaderValue) {
    let etag = Etag::new(written.id, written.version).to_string();
    let etag = HeaderValue::try_from(etag).expect("an id and an etag are ASCII");
    (header::ETAG, etag)
}

/// The outcome of a batch.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchAnswer {
    items: Vec<BatchItem>,
}

/// The outcome of an operation.
#[derive(Serialize, ToSchema)]
struct BatchItem {
    /// 201 if the document was created, 200 if it existed, 204 if it was deleted, or the status of
    /// an error.
    #[schema(example = 201)]
    status: u16,
    /// The document.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
    /// Why the operation was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    problem: Option<Problem>,
}

impl BatchAnswer {
    pub(super) fn from_outcomes(
        outcomes: impl IntoIterator<Item = Result<WriteReceipt, DocumentsError>>,
    ) -> Self {
        let items = outcomes.into_iter().map(|outcome| match outcome {
            Ok(written) => BatchItem {
                status: write_status(&written).as_u16(),
                id: Some(written.id.to_string()),
                etag: Some(Etag::new(written.id, written.version).to_string()),
                problem: None,
            },
            Err(error) => {
                let problem = to_problem(error);
                BatchItem { status: problem.status, id: None, etag: None, problem: Some(problem) }
            }
        });
        Self { items: items.collect() }
    }
}

/// The problem of a batch that was not done, with the place of the operation that could not be.
pub(super) fn batch_problem(rejection: BatchRejection) -> Problem {
    to_problem(rejection.error).with_member("operation", rejection.operation)
}

/// A document with its metadata.
#[derive(Serialize, ToSchema)]
pub(super) struct Document {
    /// Its id.
    id: String,
    /// Its version.
    #[schema(example = "\"3-0a2f6f6f\"")]
    etag: String,
    /// The version number, from 1: how often the document was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
    /// When it was created, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    created_at: Option<Timestamp>,
    /// Id of the token that created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
    /// When it was last written, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    modified_at: Option<Timestamp>,
    /// Id of the token that last wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_by: Option<String>,
    /// The id of the request that last wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// The document's collection, in lists of referring documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    /// The document, or the requested paths of it.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
    /// The targets of its references, by the names of the references.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    embedded: Map<String, Value>,
}

impl Document {
    pub(super) fn from_item(item: FindPageItem, with_meta: bool) -> Result<Self, DocumentsError> {
        let FindPageItem { stored, fields, embedded } = item;
        let document = match fields {
            Some(fields) => serde_json::value::to_raw_value(&fields),
            None => RawValue::from_string(stored.body),
        };
        let meta = with_meta.then_some(());
        Ok(Self {
            id: stored.id.to_string(),
            etag: Etag::new(stored.id, stored.version).to_string(),
            version: meta.map(|()| stored.version),
            created_at: meta.map(|()| creation_time(stored.id)),
            created_by: meta.and(stored.created_by),
            modified_at: meta.map(|()| to_timestamp(stored.modified_at)),
            modified_by: meta.and(stored.modified_by),
            request_id: meta.and(stored.trace),
            collection: None,
            document: document.map_err(|error| damaged_error(stored.id, &error))?,
            embedded,
        })
    }

    /// A document with its metadata.
    pub(super) fn from_stored(stored: StoredDocument) -> Result<Self, DocumentsError> {
        let item = FindPageItem { stored, fields: None, embedded: Map::new() };
        Self::from_item(item, true)
    }

    fn from_referring(
        collection: &CollectionName,
        stored: StoredDocument,
    ) -> Result<Self, DocumentsError> {
        let item = FindPageItem { stored, fields: None, embedded: Map::new() };
        Ok(Self { collection: Some(collection.to_string()), ..Self::from_item(item, false)? })
    }
}

/// Ids begin with the time at which they were given, in milliseconds.
fn creation_time(id: DocumentId) -> Timestamp {
    Timestamp::from_micros((id.number().0 >> 16).saturating_mul(1_000))
}

pub(super) fn damaged_error(id: DocumentId, error: &serde_json::Error) -> DocumentsError {
    DocumentsError::Damaged { id, what: error.to_string() }
}

/// A page of documents.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentList {
    items: Vec<Document>,
    /// The number of all matches, if `count` asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<i64>,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl DocumentList {
    pub(super) fn from_page(page: FindPage) -> Result<Self, DocumentsError> {
        let items = page.items.into_iter().map(|item| Document::from_item(item, false));
        Ok(Self { items: items.collect::<Result<_, _>>()?, count: page.count, next: page.next })
    }

    pub(super) fn from_referring(page: ReferringDocuments) -> Result<Self, DocumentsError> {
        let items = page
            .items
            .into_iter()
            .map(|(collection, stored)| Document::from_referring(&collection, stored));
        Ok(Self { items: items.collect::<Result<_, _>>()?, count: None, next: page.next })
    }
}

/// The error of a parameter that cannot be used, with the part of the request it stands in.
pub(super) fn parameter_error(place: &'static str, message: impl Into<String>) -> RequestError {
    RequestError::Parameter { place, message: message.into() }
}

/// The problem of an error, with what is known of it as members of their own.
pub(super) fn to_problem(error: DocumentsError) -> Problem {
    let member: Option<(&str, Value)> = match &error {
        DocumentsError::DefinitionInvalid { violations }
        | DocumentsError::ValidationFailed { violations } => {
            Some(("violations", json!(violations)))
        }
        DocumentsError::UnresolvedReference { references } => {
            let each = references.iter().map(|told| {
                json!({
                    "reference": told.reference, "to": told.target_collection, "pointers": told.pointers, "identity": told.identity,
                })
            });
            Some(("references", each.collect()))
        }
        DocumentsError::StillReferenced { referrers } => {
            let first: Value = referrers
                .first
                .iter()
                .map(|(collection, id)| json!({"collection": collection, "id": id.to_string()}))
                .collect();
            let summary =
                json!({"count": referrers.count, "is_more": referrers.has_more, "first": first});
            Some(("referrers", summary))
        }
        DocumentsError::VersionMismatch { at: Some(at) } => Some(("etag", json!(at.to_string()))),
        _ => None,
    };
    if error.kind() == egret_base::Kind::Internal {
        condition::occur("documents_damaged", "documents", &error, "a stored document is damaged");
    }
    let problem = Problem::from(error);
    match member {
        Some((name, value)) => problem.with_member(name, Some(value)),
        None => problem,
    }
}
