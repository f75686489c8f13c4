//! What can go wrong with documents.

use egret_base::{Coded, Kind};
use egret_postgres::databases::DatabasesError;
use egret_postgres::slots::SlotsTaken;
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::{PostgresError, installation, retry, tokio_postgres};

use self::phrases::{at_version, counted, listed, said, unresolved};
use crate::core::collection::Told;
use crate::core::decide::Etag;
use crate::model::{CollectionName, DocumentId, Referrers, Violation};

/// An error of the documents engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DocumentsError {
    /// What is declared of collections is not what it should be.
    #[error("the definition is not valid: {}", listed(.violations))]
    DefinitionInvalid {
        /// All that is wrong with it, at most 100; pointers are into what was sent.
        violations: Vec<Violation>,
    },
    /// A webhook has an address to which changes are not posted.
    #[error("webhook: {reason}")]
    WebhookInvalid {
        /// What is wrong with it.
        reason: String,
    },
    /// A document, or a change of one, is not what its collection allows.
    #[error("the document is not valid: {}", listed(.violations))]
    ValidationFailed {
        /// All that is wrong with it, at most 100.
        violations: Vec<Violation>,
    },
    /// What was sent is larger than it may be.
    #[error(
        "the body takes {bytes} bytes, numbers written out, and may take {bytes_max}, `{limit}`"
    )]
    PayloadTooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
        /// The name of that limit.
        limit: &'static str,
    },
    /// A document refers to others that are not there.
    #[error("{}: make it first, or leave the reference out", unresolved(.references))]
    UnresolvedReference {
        /// All of them.
        references: Vec<Told>,
    },
    /// Others refer to a document that was to go.
    #[error(
        "{} to it: change or delete them first", counted(.referrers)
    )]
    StillReferenced {
        /// Who does.
        referrers: Referrers,
    },
    /// Another document has this identity.
    #[error("another document has this identity in collection `{collection}`")]
    IdentityConflict {
        /// In which collection.
        collection: CollectionName,
    },
    /// The identity of a document may not change.
    #[error(
        "the identity of a document of `{collection}` does not change: delete it, and make another"
    )]
    IdentityImmutable {
        /// The collection.
        collection: CollectionName,
    },
    /// Writes that are done all or none are about one document.
    #[error(
        "operation {before} is about the same document or identity: each may be in one operation only"
    )]
    Twice {
        /// The place of the earlier one.
        before: usize,
    },
    /// A query is not what it may be.
    #[error("{reason}")]
    QueryInvalid {
        /// Why.
        reason: String,
    },
    /// A query takes too long.
    #[error("the query takes longer than it may, {timeout}, `documents.query_timeout`")]
    QueryTimeout {
        /// How long it may take.
        timeout: egret_base::settings::Span,
    },
    /// More was to be embedded than may be.
    #[error(
        "what is to be embedded takes more than {bytes_max}, `documents.page_bytes_max`: ask for fewer documents, or fewer references, at a time"
    )]
    EmbeddedTooLarge {
        /// How much it may take.
        bytes_max: egret_base::settings::Size,
    },
    /// A batch has too many operations.
    #[error(
        "a batch may have {batch_max} operations, `documents.batch_max`, and this one has {operations}"
    )]
    BatchTooLarge {
        /// How many it has.
        operations: usize,
        /// How many it may have.
        batch_max: u32,
    },
    /// Whoever asks may not.
    #[error("{what}")]
    AccessDenied {
        /// What he lacks.
        what: String,
    },
    /// A key stands for another request.
    #[error("this Idempotency-Key came with another request before: a key is of one request")]
    KeyReused,
    /// What is asked for is forgotten already.
    #[error(
        "changes up to position {forgotten} are forgotten, `documents.feed_kept`: begin after that, or anew"
    )]
    ChangesGone {
        /// The last position that is.
        forgotten: i64,
    },
    /// What is asked for is after a position that was not reached.
    #[error(
        "the last change has position {last}: the database is at an earlier state than the one that went further, read documents anew and go on after that"
    )]
    ChangesAhead {
        /// The last position that there is.
        last: i64,
    },
    /// Too much is imported at once.
    #[error(
        "an import takes {} lines a request, `import_lines_max`, and this one has {lines}",
        crate::api::IMPORT_LINES_MAX
    )]
    ImportTooLarge {
        /// How many lines it has.
        lines: usize,
    },
    /// Too many documents follow from the change of an identity.
    #[error(
        "more than {cascade_max} documents would have to change with this identity, `documents.cascade_max`"
    )]
    CascadeTooLarge {
        /// How many may.
        cascade_max: u32,
    },
    /// The condition of the request does not hold.
    #[error("{}", at_version(.at))]
    VersionMismatch {
        /// At which version the document is, if there is one.
        at: Option<Etag>,
    },
    /// There is no such document.
    #[error("collection `{collection}` has no such document")]
    NotFound {
        /// The collection.
        collection: CollectionName,
        /// The document, where it was named by its id.
        id: Option<DocumentId>,
    },
    /// There is no such collection.
    #[error("collection `{collection}` is not declared")]
    NoCollection {
        /// The name.
        collection: CollectionName,
    },
    /// A database has no documents.
    #[error("database `{database}` has no collections: declare one by `egret collection apply`")]
    NoDocuments {
        /// The database.
        database: String,
    },
    /// What the database had of the engine is not there any more.
    #[error(
        "the collections of this database were removed: declare one by `egret collection apply`"
    )]
    Removed {
        /// What is missing, as the server says it.
        missing: String,
    },
    /// A document is there that was to be restored.
    #[error("the document is there, and was not deleted: say which version is to be restored")]
    NotDeleted,
    /// There are documents that would go.
    #[error(
        "database `{database}` has {documents} documents, which would go: say that this is meant"
    )]
    DocumentsExist {
        /// The database.
        database: String,
        /// How many.
        documents: i64,
    },
    /// Nobody is told under this name.
    #[error("there is no subscription `{subscription}`")]
    NoSubscription {
        /// The name.
        subscription: CollectionName,
    },
    /// As many are told as may be.
    #[error("there may be {subscriptions_max} subscriptions, `documents.subscriptions_max`")]
    TooManySubscriptions {
        /// How many there may be.
        subscriptions_max: u32,
    },
    /// There are as many collections as may be.
    #[error(
        "there may be {collections_max} collections in a database, `documents.collections_max`"
    )]
    TooManyCollections {
        /// How many there may be.
        collections_max: usize,
    },
    /// Too much waits, or runs at a time.
    #[error(transparent)]
    Overloaded(#[from] SlotsTaken),
    /// Another Egret writes documents in the database.
    #[error("another Egret writes documents here: {holder}; ask that one")]
    OwnedElsewhere {
        /// Which.
        holder: String,
    },
    /// The database cannot be reached.
    #[error("the database cannot be reached at the moment")]
    Unreachable,
    /// Egret stops.
    #[error("Egret stops: it is not known whether this was done")]
    Stopping,
    /// What is stored is not what was put there.
    #[error("document {id} is damaged: {what}; `egret document fsck` says more")]
    Damaged {
        /// The document.
        id: DocumentId,
        /// What is wrong.
        what: String,
    },
    /// Collections are declared in a database that is not there.
    #[error("database: `{database}` does not exist")]
    DatabaseNotFound {
        /// Its name.
        database: String,
    },
    /// No database was meant.
    #[error("database: {reason}")]
    Database {
        /// Why.
        reason: String,
    },
    /// The server refused, or could not be asked.
    #[error("{}", said(.code, .message))]
    Server {
        /// Its code, if it said one.
        code: Option<SqlState>,
        /// What it said, or why it could not be asked.
        message: String,
        /// Whether the session is of no use any more.
        is_lost: bool,
    },
}

impl From<tokio_postgres::Error> for DocumentsError {
    fn from(error: tokio_postgres::Error) -> Self {
        if installation::is_removed(&error) {
            return Self::removed(&error);
        }
        let code = error.code().cloned();
        // Another owner has raised the epoch.
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
            error => Self::Server {
                code: None,
                is_lost: error.retryable(),
                message: error.to_string(),
            },
        }
    }
}

impl From<DatabasesError> for DocumentsError {
    fn from(error: DatabasesError) -> Self {
        match error {
            DatabasesError::Postgres(error) => error.into(),
            // As one without documents is answered: who may not look into it is not told whether it exists.
            DatabasesError::Unknown { asked, .. } => Self::NoDocuments { database: asked },
            DatabasesError::Several { .. } => Self::Database {
                reason: error.to_string(),
            },
        }
    }
}

/// Whether the server does not take what it was given, and never will: a value that is none (class 22), or more than it can hold (class 54).
fn is_of_values(code: &SqlState) -> bool {
    ["22", "54"]
        .iter()
        .any(|class| code.code().starts_with(class))
}

impl DocumentsError {
    fn removed(error: &tokio_postgres::Error) -> Self {
        Self::Removed {
            missing: egret_base::error::chain(error),
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        matches!(self, Self::Removed { .. })
    }

    /// The same where the engine's part of schema `egret` is there, so that what is missing is a part of that.
    pub(crate) fn of_damaged_schema(self) -> Self {
        match self {
            Self::Removed { missing } => Self::Server {
                message: missing,
                code: Some(SqlState::UNDEFINED_TABLE),
                is_lost: true,
            },
            error => error,
        }
    }

    /// Whether it is the session that failed, and not what was asked of it.
    pub(crate) fn is_of_session(&self) -> bool {
        matches!(self, Self::Server { is_lost: true, .. })
    }

    /// Whether another Egret writes by now: nothing of it was done.
    pub(crate) fn is_of_another_owner(&self) -> bool {
        let code = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
        matches!(self, Self::Server { code: Some(found), .. } if *found == code)
    }

    /// Whether the server has given up one transaction for the sake of another: the same again may do.
    pub(crate) fn is_to_repeat(&self) -> bool {
        let conflicts = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        matches!(self, Self::Server { code: Some(code), .. } if conflicts.contains(code))
    }

    /// Whether the server says that a reference would dangle.
    pub(crate) fn is_of_reference(&self) -> bool {
        let of_reference = [
            SqlState::FOREIGN_KEY_VIOLATION,
            SqlState::RESTRICT_VIOLATION,
        ];
        matches!(self, Self::Server { code: Some(code), .. } if of_reference.contains(code))
    }

    /// Whether it is about what was to be written, and not about all that waits.
    pub(crate) fn is_of_write(&self) -> bool {
        let kind = self.kind();
        !matches!(kind, Kind::Unavailable | Kind::LimitReached) && !self.is_removed()
            || matches!(self, Self::CascadeTooLarge { .. })
    }

    /// A document that is wrong at one place.
    pub(crate) fn violation(violation: Violation) -> Self {
        Self::ValidationFailed {
            violations: vec![violation],
        }
    }
}

impl Coded for DocumentsError {
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
            Self::IdentityConflict { .. } | Self::Twice { .. } => "identity_conflict",
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
            // Waiting does not help.
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
            | Self::Twice { .. } => Kind::Conflict,
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
            Self::Server {
                code: Some(code), ..
            } if is_of_values(code) => Kind::Invalid,
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
