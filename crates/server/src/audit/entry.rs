//! One entry of the audit log, and which entries are asked for.

use egret_base::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of an object's name that are kept.
pub(crate) const OBJECT_BYTES_MAX: usize = 256;

/// One change, or one refused attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was answered, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The request's id. The start and the end of a session have the same one.
    pub request_id: String,
    /// The id of the token; null without a valid token.
    pub token: Option<String>,
    /// The token's name.
    pub token_name: Option<String>,
    /// The token's tenant; for a session, the tenant that its client names.
    pub tenant: Option<String>,
    /// The client's address: that of the connection, or the one that a proxy of
    /// `server.trusted_proxies` names.
    pub address: Option<String>,
    /// The operation, as the OpenAPI document or the gRPC contract names it; for a session through
    /// the PostgreSQL proxy, `openBranchSession` or `endBranchSession`.
    #[schema(example = "deleteQueue")]
    pub operation: String,
    /// The object of the operation: the names in its path; for a session, the branch.
    #[schema(example = "orders")]
    pub object: Option<String>,
    /// The HTTP status of the response; 499 if the client disconnected before it was complete. For
    /// a session, 200 or the HTTP status that matches the reason of its refusal.
    #[schema(example = 204)]
    pub status: u16,
    /// The number of earlier entries that were only counted: failed requests, or sessions of the
    /// same role, branch and address.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
    /// For a session, its database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// For a session, its role, as its client names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// For a session, why it was refused, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For the end of a session, its duration in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Which entries are asked for; `None` is any.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub(crate) since: Option<Timestamp>,
    pub(crate) token: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) limit: usize,
}

impl AuditFilter {
    pub(super) fn matches(&self, entry: &AuditEntry) -> bool {
        let is_match = |wanted: &Option<String>, actual: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| actual == Some(wanted))
        };
        self.since.is_none_or(|since| entry.at >= since)
            && is_match(&self.token, entry.token.as_deref())
            && is_match(&self.tenant, entry.tenant.as_deref())
            && is_match(&self.operation, Some(&entry.operation))
    }
}
