//! Problem descriptions of requests that the server refuses.

use serde::Deserialize;
use serde_json::Value as Json;

/// The server's description of an error (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) title: Option<String>,
    pub(super) code: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) position: Option<usize>,
    violations: Vec<Violation>,
    references: Vec<MissingReference>,
    referrers: Option<Referrers>,
    /// Prometheus's own form has these two.
    pub(super) error: Option<String>,
    #[serde(rename = "errorType")]
    pub(super) error_type: Option<String>,
}

/// One error at a place of a document.
#[derive(Debug, Deserialize)]
struct Violation {
    pointer: String,
    message: String,
}

/// A reference to a document that does not exist.
#[derive(Debug, Deserialize)]
struct MissingReference {
    to: String,
    pointers: Vec<String>,
    identity: Json,
}

/// The first documents that refer to one that was to be deleted.
#[derive(Debug, Deserialize)]
struct Referrers {
    first: Vec<Referrer>,
}

#[derive(Debug, Deserialize)]
struct Referrer {
    collection: String,
    id: String,
}

/// Codes of refusals that another scope of the token would help with.
const SCOPE_CODES: [&str; 4] = ["scope_missing", "access_denied", "view_read_denied", "forbidden"];

impl Problem {
    /// Whether the token lacks a scope, rather than a role some right in PostgreSQL.
    pub(super) fn lacks_scope(&self) -> bool {
        let code = self.code.as_deref().or(self.error_type.as_deref());
        code.is_some_and(|code| SCOPE_CODES.contains(&code))
    }

    /// All details, a line for each, where the message names only the first.
    pub(super) fn detail_lines(&self) -> Option<String> {
        let violations = self.violations.iter().map(|violation| match violation.pointer.as_str() {
            "" => violation.message.clone(),
            pointer => format!("{pointer}: {}", violation.message),
        });
        let references = self.references.iter().map(|reference| {
            format!(
                "{}: `{}` has no document with {}",
                reference.pointers.join(", "),
                reference.to,
                reference.identity
            )
        });
        let referrers = self
            .referrers
            .iter()
            .flat_map(|list| &list.first)
            .map(|referrer| format!("{} {}", referrer.collection, referrer.id));
        let lines: Vec<String> = violations.chain(references).chain(referrers).collect();
        let has_details = lines.len() > 1 || self.referrers.is_some();
        has_details.then(|| lines.join("\n"))
    }
}
