//! Errors of the documents engine.

use egret_base::{CodedError, Kind};
use egret_postgres::databases::DatabasesError;
use egret_postgres::slots::SlotsTaken;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::{PostgresError, installation, retry, tokio_postgres};

use self::phrases::{
    describe_mismatch, describe_referrers, describe_server_error, describe_unresolved,
    summarize_violations,
};
use crate::model::{
    CollectionName, DocumentId, Etag, FeedPosition, Referrers, UnresolvedReference, Violation,
};

/// An error of the documents engine, with its context.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DocumentsError {
    /// A definition of a collection is not valid.
    #[error("the definition is not valid: {}", summarize_violations(.violations))]
    DefinitionInvalid {
        /// Its violations, at most 100; pointers are into the request.
        violations: Vec<Violation>,
    },
    /// A webhook's URL is not an address to which changes may be posted.
    #[error("webhook: {reason}")]
    WebhookInvalid {
        /// Why it is rejected.
        reason: String,
    },
    /// A document or a patch is not valid under its collection's definition.
    #[error("the document is not valid: {}", summarize_violations(.violations))]
    ValidationFailed {
        /// Its violations, at most 100.
        violations: Vec<Violation>,
    },
    /// The request body exceeds a size limit.
    #[error(
        "the body has {bytes} bytes with its numbers written out, more than the maximum of \
         {bytes_max} (`{limit}`)"
    )]
    PayloadTooLarge {
        /// Size of the body in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        bytes_max: usize,
        /// Name of the limit.
        limit: &'static str,
    },
    /// A document refers to others that do not exist.
    #[error("{}: create it first, or omit the reference", describe_unresolved(.references))]
    UnresolvedReference {
        /// All references without a target.
        references: Vec<UnresolvedReference>,
    },
    /// The document to be deleted is still referenced.
    #[error(
        "{} to it: change or delete them first", describe_referrers(.referrers)
    )]
    StillReferenced {
        /// Documents that refer to it.
        referrers: Referrers,
    },
    /// Another document has this identity.
    #[error("another document has this identity in collection `{collection}`")]
    IdentityConflict {
        /// Collection in which the identity is taken.
        collection: CollectionName,
    },
    /// The identity of a document must not change.
    #[error(
        "the identity of a document of `{collection}` cannot change: delete it, and create another"
    )]
    IdentityImmutable {
        /// Collection whose identities are immutable.
        collection: CollectionName,
    },
    /// Two operations of a batch concern the same document or identity.
    #[error("operation {before} concerns the same document or identity: each may occur only once")]
    DuplicateOperation {
        /// Index of the earlier operation.
        before: usize,
    },
    /// A query is malformed, or uses an undeclared path.
    #[error("{reason}")]
    QueryInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// A query ran into its timeout.
    #[error("the query took longer than {timeout} (`documents.query_timeout`)")]
    QueryTimeout {
        /// The timeout that was exceeded.
        timeout: egret_base::settings::ConfigDuration,
    },
    /// The documents to embed exceed their size limit.
    #[error(
        "the embedded documents exceed {bytes_max} (`documents.page_bytes_max`): request fewer \
         documents, or fewer references, at a time"
    )]
    EmbeddedTooLarge {
        /// Maximum size of embedded documents.
        bytes_max: egret_base::settings::ByteSize,
    },
    /// A batch has too many operations.
    #[error(
        "the batch has {operations} operations, more than the maximum of {batch_max} \
         (`documents.batch_max`)"
    )]
    BatchTooLarge {
        /// Number of operations in the batch.
        operations: usize,
        /// Maximum number of operations.
        batch_max: u32,
    },
    /// The caller lacks a right.
    #[error("{what}")]
    AccessDenied {
        /// Description of the missing right.
        what: String,
    },
    /// The idempotency key was used for another request.
    #[error("this Idempotency-Key was used for another request: use a new key for each request")]
    KeyReused,
    /// The changes asked for are no longer kept.
    #[error(
        "changes up to position {forgotten} are no longer kept (`documents.feed_kept`): continue \
         after that position, or read all documents again"
    )]
    ChangesGone {
        /// Last position whose changes were deleted.
        forgotten: FeedPosition,
    },
    /// The position asked for is beyond the end of the feed.
    #[error(
        "the last change has position {last}, before the requested one: the database was \
         restored to an earlier state; read all documents again and continue after that position"
    )]
    ChangesAhead {
        /// Last position of the feed.
        last: FeedPosition,
    },
    /// An import has too many lines.
    #[error(
        "the import has {lines} lines, more than the maximum of {} (`import_lines_max`)",
        crate::model::IMPORT_LINES_MAX
    )]
    ImportTooLarge {
        /// Number of lines in the request.
        lines: usize,
    },
    /// An identity change would rewrite too many documents.
    #[error(
        "changing this identity affects more than {cascade_max} documents (`documents.cascade_max`)"
    )]
    CascadeTooLarge {
        /// Maximum number of documents rewritten.
        cascade_max: u32,
    },
    /// The precondition of the request does not hold.
    #[error("{}", describe_mismatch(.at))]
    VersionMismatch {
        /// Current version of the document, if it exists.
        at: Option<Etag>,
    },
    /// There is no such document.
    #[error("collection `{collection}` has no such document")]
    NotFound {
        /// Collection in which it was looked up.
        collection: CollectionName,
        /// Id of the document, if it was named by its id.
        id: Option<DocumentId>,
    },
    /// There is no such collection.
    #[error("collection `{collection}` is not declared")]
    NoCollection {
        /// Name of the collection.
        collection: CollectionName,
    },
    /// The database has no collections.
    #[error("database `{database}` has no collections: declare one with `egret collection apply`")]
    NoDocuments {
        /// Name of the database.
        database: String,
    },
    /// The engine's tables were removed from the database.
    #[error(
        "the collections of this database were removed: declare one with `egret collection apply`"
    )]
    Removed {
        /// The missing table, as the server reports it.
        missing: String,
    },
    /// The document to restore was not deleted.
    #[error("the document exists and was not deleted: give the version to restore")]
    NotDeleted,
    /// Documents would be deleted without `force`.
    #[error("database `{database}` has {documents} documents: set `force` to delete them too")]
    DocumentsExist {
        /// Name of the database.
        database: String,
        /// Number of documents in it.
        documents: i64,
    },
    /// There is no subscription of this name.
    #[error("there is no subscription `{subscription}`")]
    NoSubscription {
        /// Name of the subscription.
        subscription: CollectionName,
    },
    /// The limit of subscriptions is reached.
    #[error(
        "there may be at most {subscriptions_max} subscriptions (`documents.subscriptions_max`)"
    )]
    TooManySubscriptions {
        /// Maximum number of subscriptions.
        subscriptions_max: u32,
    },
    /// The limit of collections is reached.
    #[error(
        "a database may have at most {collections_max} collections (`documents.collections_max`)"
    )]
    TooManyCollections {
        /// Maximum number of collections in a database.
        collections_max: usize,
    },
    /// Too many requests are waiting or running.
    #[error(transparent)]
    Overloaded(#[from] SlotsTaken),
    /// Another Egret owns the documents of the database.
    #[error("another Egret writes documents in this database: {holder}; send requests there")]
    OwnedElsewhere {
        /// Description of that Egret's session.
        holder: String,
    },
    /// The database cannot be reached.
    #[error("the database cannot be reached at the moment")]
    Unreachable,
    /// Egret is shutting down; the outcome of the request is unknown.
    #[error("Egret is stopping: it is unknown whether the request was carried out")]
    Stopping,
    /// A stored document is damaged.
    #[error("document {id} is damaged: {what}; run `egret document fsck` for details")]
    Damaged {
        /// Id of the damaged document.
        id: DocumentId,
        /// Description of the damage.
        what: String,
    },
    /// A collection is declared in a database that does not exist.
    #[error("database: `{database}` does not exist")]
    DatabaseNotFound {
        /// Name of the database.
        database: String,
    },
    /// The request does not determine a database.
    #[error("database: {reason}")]
    Database {
        /// Why no database was chosen.
        reason: String,
    },
    /// The server reported an error, or could not be reached.
    #[error("{}", describe_server_error(.code, .message))]
    Server {
        /// SQLSTATE of the error; none: it is not from the server.
        code: Option<SqlState>,
        /// Message of the server or of the connection.
        message: String,
        /// Whether the session can no longer be used.
        is_lost: bool,
    },
}

impl From<tokio_postgres::Error> for DocumentsError {
    fn from(error: tokio_postgres::Error) -> Self {
        if installation::is_removed(&error) {
            return Self::removed(&error);
        }
        let code = error.code().cloned();
        // Another owner has raised the epoch: this session must not write any more.
        let is_fenced = code == Some(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        Self::Server {
            is_lost: is_fenced || retry::is_transient(&error),
            message: egret_base::error::chain(&error),
            code,
        }
    }
}

impl From<PostgresError> for DocumentsError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::SessionsTaken(taken) => Self::Overloaded(taken),
            PostgresError::Server { error, .. } if installation::is_removed(&error) => {
                Self::removed(&error)
            }
            error => {
                Self::Server { code: None, is_lost: error.retryable(), message: error.to_string() }
            }
        }
    }
}

impl From<DatabasesError> for DocumentsError {
    fn from(error: DatabasesError) -> Self {
        match error {
            DatabasesError::Postgres(error) => error.into(),
            // Answered like a database without documents: a caller without access must not learn
            // whether the database exists.
            DatabasesError::Unknown { asked, .. } => Self::NoDocuments { database: asked },
            DatabasesError::Several { .. } => Self::Database { reason: error.to_string() },
        }
    }
}

/// Whether the server rejects the values themselves, so that a retry cannot help: an invalid value
/// (class 22), or a limit exceeded (class 54).
fn is_value_error(code: &SqlState) -> bool {
    ["22", "54"].iter().any(|class| code.code().starts_with(class))
}

impl DocumentsError {
    fn removed(error: &tokio_postgres::Error) -> Self {
        Self::Removed { missing: egret_base::error::chain(error) }
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self, Self::Removed { .. })
    }

    /// Translates [`Self::Removed`] where the engine's schema still exists: then only a part of it
    /// is missing.
    pub(crate) fn into_damaged_schema(self) -> Self {
        match self {
            Self::Removed { missing } => Self::Server {
                message: missing,
                code: Some(SqlState::UNDEFINED_TABLE),
                is_lost: true,
            },
            error => error,
        }
    }

    /// Whether the session failed, rather than the statement.
    pub(crate) fn is_session_lost(&self) -> bool {
        matches!(self, Self::Server { is_lost: true, .. })
    }

    /// Whether another Egret has become the owner: nothing was written.
    pub(crate) fn is_fenced(&self) -> bool {
        let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        matches!(self, Self::Server { code: Some(found), .. } if *found == code)
    }

    /// Whether the server aborted a transaction because of a concurrent one, so that a retry may
    /// succeed.
    pub(crate) fn is_transaction_conflict(&self) -> bool {
        let conflict_codes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        matches!(self, Self::Server { code: Some(code), .. } if conflict_codes.contains(code))
    }

    /// Whether the server reports that a reference would dangle.
    pub(crate) fn is_foreign_key_violation(&self) -> bool {
        let violation_codes = [SqlState::FOREIGN_KEY_VIOLATION, SqlState::RESTRICT_VIOLATION];
        matches!(self, Self::Server { code: Some(code), .. } if violation_codes.contains(code))
    }

    /// Whether the error is about the write itself, rather than about the state of the engine.
    pub(crate) fn is_caused_by_write(&self) -> bool {
        let kind = self.kind();
        !matches!(kind, Kind::Unavailable | Kind::LimitReached) && !self.is_removed()
            || matches!(self, Self::CascadeTooLarge { .. })
    }

    /// The error of a write whose caller lacks a claim for the document.
    pub(crate) fn claim_missing(claim: &str) -> Self {
        Self::AccessDenied {
            what: format!("the token lacks the claim `{claim}` for this document"),
        }
    }

    /// The error of a document with a single violation.
    pub(crate) fn violation(violation: Violation) -> Self {
        Self::ValidationFailed { violations: vec![violation] }
    }
}

impl CodedError for DocumentsError {
    fn code(&self) -> &'static str {
        match self {
            Self::DefinitionInvalid { .. } => "definition_invalid",
            Self::WebhookInvalid { .. } => "webhook_invalid",
            Self::ValidationFailed { .. } => "validation_failed",
            Self::PayloadTooLarge { .. }
            | Self::BatchTooLarge { .. }
            | Self::ImportTooLarge { .. } => "payload_too_large",
            Self::UnresolvedReference { .. } => "unresolved_reference",
            Self::StillReferenced { .. } => "still_referenced",
            Self::IdentityConflict { .. } | Self::DuplicateOperation { .. } => "identity_conflict",
            Self::IdentityImmutable { .. } => "identity_immutable",
            Self::VersionMismatch { .. } => "version_mismatch",
            Self::QueryInvalid { .. } => "query_invalid",
            Self::EmbeddedTooLarge { .. } => "embedded_too_large",
            Self::QueryTimeout { .. } => "query_timeout",
            Self::AccessDenied { .. } => "access_denied",
            Self::NotDeleted => "not_deleted",
            Self::DocumentsExist { .. } => "documents_exist",
            Self::KeyReused => "idempotency_key_reused",
            Self::ChangesGone { .. } | Self::ChangesAhead { .. } => "changes_gone",
            Self::NotFound { .. } => "not_found",
            Self::NoCollection { .. } | Self::NoDocuments { .. } | Self::Removed { .. } => {
                "collection_not_found"
            }
            Self::NoSubscription { .. } => "subscription_not_found",
            Self::TooManyCollections { .. }
            | Self::TooManySubscriptions { .. }
            | Self::CascadeTooLarge { .. } => "limit_exceeded",
            Self::Overloaded(taken) if taken.is_of_all() => "overloaded",
            Self::Overloaded(_) => "limit_exceeded",
            Self::OwnedElsewhere { .. } => "documents_owned_elsewhere",
            Self::Unreachable | Self::Stopping => "unavailable",
            Self::Damaged { .. } => "document_damaged",
            Self::DatabaseNotFound { .. } => "database_not_found",
            Self::Database { .. } => "invalid_request",
            Self::Server { .. } => "document_statement_failed",
        }
    }

    fn retryable(&self) -> bool {
        match self {
            // Waiting does not help for these.
            Self::TooManyCollections { .. }
            | Self::TooManySubscriptions { .. }
            | Self::CascadeTooLarge { .. }
            | Self::Overloaded(SlotsTaken::Oversized { .. }) => false,
            _ => matches!(self.kind(), Kind::LimitReached | Kind::Unavailable),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::DefinitionInvalid { .. }
            | Self::WebhookInvalid { .. }
            | Self::ValidationFailed { .. } => Kind::Invalid,
            Self::PayloadTooLarge { .. }
            | Self::BatchTooLarge { .. }
            | Self::ImportTooLarge { .. } => Kind::TooLarge,
            Self::UnresolvedReference { .. }
            | Self::StillReferenced { .. }
            | Self::IdentityConflict { .. }
            | Self::DuplicateOperation { .. } => Kind::Conflict,
            Self::IdentityImmutable { .. }
            | Self::Database { .. }
            | Self::QueryInvalid { .. }
            | Self::EmbeddedTooLarge { .. } => Kind::Invalid,
            Self::VersionMismatch { .. } => Kind::Mismatch,
            Self::AccessDenied { .. } => Kind::Denied,
            Self::NotDeleted | Self::DocumentsExist { .. } => Kind::Conflict,
            Self::KeyReused => Kind::Conflict,
            Self::ChangesGone { .. } | Self::ChangesAhead { .. } => Kind::Gone,
            Self::NotFound { .. }
            | Self::NoCollection { .. }
            | Self::NoSubscription { .. }
            | Self::NoDocuments { .. }
            | Self::DatabaseNotFound { .. }
            | Self::Removed { .. } => Kind::NotFound,
            Self::TooManyCollections { .. }
            | Self::TooManySubscriptions { .. }
            | Self::CascadeTooLarge { .. } => Kind::LimitReached,
            Self::Overloaded(taken) => taken.kind(),
            Self::Server { code: Some(code), .. } if is_value_error(code) => Kind::Invalid,
            Self::OwnedElsewhere { .. }
            | Self::Unreachable
            | Self::Stopping
            | Self::QueryTimeout { .. }
            | Self::Server { .. } => Kind::Unavailable,
            Self::Damaged { .. } => Kind::Internal,
        }
    }
}

mod phrases;
#[cfg(test)]
mod tests;
