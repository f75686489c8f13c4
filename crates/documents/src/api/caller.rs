//! The caller of an operation.

use std::sync::Arc;

use crate::core::collection::DeclaredCollection;
use crate::core::rights::Rights;
use crate::store::read::StoredDocument;

/// Caller of an operation, with the database and tenant it addresses.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Database to use; none: the only one that has documents.
    pub database: Option<String>,
    /// Name of the tenant whose documents are used.
    pub tenant: String,
    /// Name of the caller, recorded as author of writes.
    pub author: Option<String>,
    /// Trace id of the request, recorded with writes.
    pub trace: Option<String>,
    /// Collections and claims that the caller's token grants.
    pub rights: Arc<Rights>,
    /// `Idempotency-Key` of the request: repeated requests with it get the first answer.
    pub idempotency_key: Option<String>,
    /// Whether writes are acknowledged before they are flushed, so that a crash of the server may
    /// lose them.
    pub is_relaxed: bool,
}

/// Whether the caller's claims allow this document; the right to read its collection is checked
/// elsewhere.
pub(super) fn is_visible(
    caller: &Caller,
    declared: &DeclaredCollection,
    stored: &StoredDocument,
) -> bool {
    let definition = declared.collection.definition();
    caller.rights.is_unrestricted(definition)
        || stored
            .parse_body()
            .is_ok_and(|body| caller.rights.missing_claim(definition, &body).is_none())
}
