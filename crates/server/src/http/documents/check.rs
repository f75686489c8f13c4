//! Whether identities, aliases, edges and bodies agree.

use axum::extract::State;
use axum::response::Response;
use egret_documents::Documents;
use egret_documents::api::FsckReport;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::long_running::respond_with_keepalive;
use super::request::ReadScope;
use crate::extract::Query;

/// The parameters of a check.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckParams {
    /// The database; when absent, the only one that has collections.
    #[serde(rename = "database")]
    _database: Option<String>,
    /// Whether to repair the findings that can be repaired.
    #[serde(default)]
    repair: bool,
}

/// The counts of what was checked, and the findings.
#[derive(Serialize, ToSchema)]
pub(super) struct CheckAnswer {
    /// The number of documents that were checked, of all tenants.
    documents: u64,
    /// The number of identities by which they are found.
    aliases: u64,
    /// The number of references between documents.
    edges: u64,
    /// The number of findings.
    findings_count: u64,
    /// The findings, at most 1,000.
    findings: Vec<CheckFinding>,
}

/// An inconsistency that was found.
#[derive(Serialize, ToSchema)]
struct CheckFinding {
    /// `body_invalid`, `number_wrong`, `alias_missing`, `identity_taken`, `alias_stale`,
    /// `reference_dangling`, `edges_wrong` or `edge_stale`.
    #[schema(example = "alias_missing")]
    kind: &'static str,
    /// The document's collection, if the finding concerns a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    /// The document's id, if the finding concerns a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// Description of the finding.
    message: String,
    /// Whether the finding was repaired.
    is_repaired: bool,
}

impl CheckAnswer {
    fn from_report(report: FsckReport) -> Self {
        let findings = report.findings.into_iter().map(|finding| CheckFinding {
            kind: finding.kind.as_str(),
            collection: finding.collection.map(|name| name.to_string()),
            id: finding.id.map(|id| id.to_string()),
            message: finding.description,
            is_repaired: finding.is_repaired,
        });
        Self {
            documents: report.documents,
            aliases: report.aliases,
            edges: report.edges,
            findings_count: report.count,
            findings: findings.collect(),
        }
    }
}

/// Check documents
///
/// The check compares identities, aliases, references and bodies of all documents of a database in
/// one snapshot. With `repair`, everything that is derived from bodies is written again; writes
/// wait during the repair, but not during the check. If it takes more than a minute, the response
/// has status 200 and begins with spaces, and in case of an error it ends with a problem.
#[utoipa::path(post, path = "/v1/document-checks", operation_id = "checkDocuments", tag = "documents",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["admin"])), params(CheckParams),
    responses((status = 200, description = "The counts of what was checked, and the findings.", body = CheckAnswer)))]
pub(super) async fn check_documents(
    State(documents): State<Documents>,
    ReadScope(caller): ReadScope,
    Query(params): Query<CheckParams>,
) -> Response {
    let check = async move { documents.fsck(&caller, params.repair).await };
    respond_with_keepalive(check, CheckAnswer::from_report).await
}
