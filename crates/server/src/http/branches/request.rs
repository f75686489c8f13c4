//! Request bodies of branches, as JSON.

use std::collections::BTreeMap;

use egret_branches::model::{
    BranchName, BranchSource, BranchUpdate, NewBranch, Preset, TemplateId,
};
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use super::answer::preset_schema;
use crate::access::Caller;
use crate::extract::by_text;
use crate::tokens::TokenError;

/// The area of scopes.
pub(super) const AREA: &str = "branches";

/// A new branch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchRequest {
    /// 1 to 63 lower-case letters, digits, `-` or `_`, starting with a letter or digit.
    #[schema(value_type = String, example = "pr-42")]
    pub(super) name: BranchName,
    /// What to copy: `template` (the newest one, built if there is none), `head` (the present state
    /// of the source), `template:<id>` or `branch:<name>`.
    #[serde(default, deserialize_with = "by_text")]
    #[schema(value_type = String, default = "template")]
    from: BranchSource,
    /// Milliseconds until the branch expires and is destroyed; `branches.ttl_default` when absent.
    #[schema(minimum = 1)]
    ttl_ms: Option<u64>,
    /// Whether the branch survives a crash of the machine.
    #[serde(default)]
    durable: bool,
    /// Whether the branch's role is a superuser: for extensions that are not trusted, and for other
    /// actions that only a superuser may do. The role has no rights outside of the branch.
    #[serde(default)]
    superuser: bool,
    /// Whether roles of the application can connect with the passwords that they have in the source
    /// now. Other roles connect with the branch's own password.
    #[serde(default)]
    role_passwords: bool,
    /// Memory, log and checkpoint settings by purpose.
    #[serde(default = "small")]
    #[schema(schema_with = preset_schema)]
    preset: Preset,
    /// Single PostgreSQL settings, which override the preset.
    #[serde(default)]
    #[schema(example = json!({"work_mem": "64MB"}))]
    settings: BTreeMap<String, String>,
    /// Labels chosen by the caller.
    #[serde(default)]
    #[schema(example = json!({"ticket": "42"}))]
    labels: BTreeMap<String, String>,
    /// Whether the branch is protected from being destroyed, reset and expired.
    #[serde(default)]
    protected: bool,
}

fn small() -> Preset {
    Preset::Small
}

impl BranchRequest {
    /// Insists that a caller may create this branch: by its name, and by that of the branch that it
    /// copies. A template may be one of any branch of the tenant.
    pub(super) fn require_rights(&self, caller: &Caller) -> Result<(), TokenError> {
        caller.require_part(AREA, self.name.as_str(), &["write"])?;
        match &self.from {
            BranchSource::NewestTemplate | BranchSource::Head => Ok(()),
            BranchSource::Template(_) => require_all_templates(caller),
            BranchSource::Branch(origin) => caller.require_part(AREA, origin.as_str(), &["write"]),
        }
    }

    /// The request for the engine, on behalf of a tenant.
    pub(super) fn into_new_branch(self, tenant: &str) -> NewBranch {
        NewBranch {
            name: self.name,
            tenant: tenant.to_owned(),
            from: self.from,
            ttl_ms: self.ttl_ms,
            durable: self.durable,
            superuser: self.superuser,
            role_passwords: self.role_passwords,
            preset: self.preset,
            settings: self.settings,
            labels: self.labels,
            protected: self.protected,
        }
    }
}

/// A change to a branch; absent fields are unchanged.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchChange {
    /// Whether the branch is protected from being destroyed, reset and expired.
    protected: Option<bool>,
    /// Milliseconds from now until the branch expires and is destroyed; null for never.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    ttl_ms: Option<Option<u64>>,
    /// New labels, which replace the old ones.
    labels: Option<BTreeMap<String, String>>,
}

/// Insists that a caller may use every template of the tenant.
pub(super) fn require_all_templates(caller: &Caller) -> Result<(), TokenError> {
    caller.require_whole_area(AREA, &["write"])
}

impl BranchChange {
    pub(super) fn into_update(self) -> BranchUpdate {
        BranchUpdate { protected: self.protected, ttl_ms: self.ttl_ms, labels: self.labels }
    }
}

/// The template of a reset.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResetRequest {
    /// The template, as `template:<id>`; when absent, the one that the branch was created from.
    #[serde(default, deserialize_with = "template")]
    #[schema(value_type = Option<String>, example = "template:0197a3c2-7a53-7c11-9d2e-3f1c5a7b9d10")]
    pub(super) to: Option<TemplateId>,
}

/// A statement.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryRequest {
    /// One statement; without parameters, also several, separated by `;`.
    #[schema(example = "select * from flight where carrier = $1 limit 5")]
    pub(super) sql: String,
    /// The values of `$1`, `$2` …, as PostgreSQL writes them, or null.
    #[serde(default)]
    pub(super) params: Vec<Option<String>>,
    /// The database; it may be omitted if the branch has only one.
    pub(super) database: Option<String>,
    /// The maximum number of rows; more are an error. It cannot exceed `branches.query_rows_max`.
    pub(super) rows_max: Option<u64>,
}

/// Where a verification writes its marker.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VerifyRequest {
    /// The database; it may be omitted if the branch has only one.
    pub(super) database: Option<String>,
}

/// A request for a volume.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeRequest {
    /// The size of the volume, in bytes.
    #[schema(example = 21_474_836_480_u64)]
    pub(super) size_bytes: u64,
}

/// Reads an origin that has to be a template.
fn template<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TemplateId>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let origin = text.as_deref().map(str::parse);
    match origin.transpose() {
        Ok(None) => Ok(None),
        Ok(Some(BranchSource::Template(id))) => Ok(Some(id)),
        Ok(Some(_)) => Err(serde::de::Error::custom(
            "a branch can only be reset to a template: write template:ID with an id of the list of templates",
        )),
        Err(text) => Err(serde::de::Error::custom(text)),
    }
}

/// Tells null from absence.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
