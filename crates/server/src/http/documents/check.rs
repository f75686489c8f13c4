//! Whether identities, aliases, edges and bodies agree.

use axum::extract::State;
use axum::response::Response;
use egret_documents::Documents;
use egret_documents::api::Checked;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::patient::patiently;
use super::request::Reader;
use crate::extract::Query;

/// What is to be done.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Checking {
    /// The database; without it the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Whether what can be repaired is.
    #[serde(default)]
    repair: bool,
}

/// What was looked at, and what does not agree.
#[derive(Serialize, ToSchema)]
pub(super) struct CheckAnswer {
    /// Documents that were looked at, whosever they are.
    documents: u64,
    /// Identities by which they are found.
    aliases: u64,
    /// References from one to another.
    edges: u64,
    /// How much does not agree.
    findings_count: u64,
    /// What, up to 1,000.
    findings: Vec<CheckFinding>,
}

/// Something that does not agree.
#[derive(Serialize, ToSchema)]
struct CheckFinding {
    /// `body_invalid`, `number_wrong`, `alias_missing`, `identity_taken`, `alias_stale`, `reference_dangling`, `edges_wrong` or `edge_stale`.
    #[schema(example = "alias_missing")]
    kind: &'static str,
    /// The document's collection, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    /// The document, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// In words.
    message: String,
    /// Whether it was repaired.
    is_repaired: bool,
}

impl CheckAnswer {
    fn of(checked: Checked) -> Self {
        let findings = checked.findings.into_iter().map(|finding| CheckFinding {
            kind: finding.kind.as_str(),
            collection: finding.collection.map(|name| name.to_string()),
            id: finding.id.map(|id| id.to_string()),
            message: finding.what,
            is_repaired: finding.is_repaired,
        });
        Self {
            documents: checked.documents,
            aliases: checked.aliases,
            edges: checked.edges,
            findings_count: checked.count,
            findings: findings.collect(),
        }
    }
}

/// Check documents
///
/// Whether identities, aliases, references and bodies agree, of all documents of a database as they are at one moment. With `repair` what follows
/// from bodies is written anew; writes wait for that, and not while all is looked at. Where it takes more than a minute the answer begins with spaces, with status
/// 200, and has a problem at its end if it has failed.
#[utoipa::path(post, path = "/v1/document-checks", operation_id = "checkDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["admin"])), params(Checking),
    responses((status = 200, description = "What was looked at, and what does not agree.", body = CheckAnswer)))]
pub(super) async fn check_documents(
    State(documents): State<Documents>,
    Reader(asking): Reader,
    Query(checking): Query<Checking>,
) -> Response {
    let check = async move { documents.fsck(&asking, checking.repair).await };
    patiently(check, CheckAnswer::of).await
}
