//! Responses of branches, templates and the volume, as JSON.

use std::collections::BTreeMap;

use egret_base::Timestamp;
use egret_branches::model::{self, BranchState, LossKind, Preset, TemplateState};
use egret_branches::{BranchView, TemplateView, VolumeView};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use crate::openapi::string_enum;

/// A writable copy of a database cluster with its own server.
#[derive(Serialize, ToSchema)]
pub(super) struct Branch {
    /// Its id.
    id: String,
    /// Its name, unique within the tenant.
    #[schema(example = "pr-42")]
    name: String,
    /// The tenant that it belongs to.
    #[schema(example = "default")]
    tenant: String,
    /// The state of its lifecycle.
    #[schema(schema_with = state_schema)]
    state: BranchState,
    /// The origin of the branch.
    parent: Parent,
    /// Memory, log and checkpoint settings by purpose.
    #[schema(schema_with = preset_schema)]
    preset: Preset,
    /// Whether the branch survives a crash of the machine.
    durable: bool,
    /// Whether the branch's role is a superuser.
    superuser: bool,
    /// Whether roles of the application can connect with the passwords that they had in the source
    /// when the branch was created.
    role_passwords: bool,
    /// Whether the branch is protected from being destroyed, reset and expired.
    protected: bool,
    /// Labels chosen by the caller.
    labels: BTreeMap<String, String>,
    /// Single PostgreSQL settings, which override the preset.
    settings: BTreeMap<String, String>,
    /// When it was created, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When the branch expires and is destroyed, RFC 3339; null for never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// Its age in milliseconds.
    age_ms: u64,
    /// Its lifetime in milliseconds, from its creation or the last change of it.
    ttl_ms: Option<u64>,
    /// Sessions connected now.
    sessions: u32,
    /// Bytes on the volume that the branch does not share with its template.
    diverged_bytes: Option<u64>,
    /// Why the branch failed.
    failure: Option<String>,
    /// An action that its users did not request, with its reason: the branch was suspended to keep
    /// disk space free, or processes of it were killed because it was out of memory. Null after the
    /// branch is started again.
    notice: Option<String>,
    /// The report of its creation.
    receipt: Option<Receipt>,
}

/// The origin of a branch.
#[derive(Serialize, ToSchema)]
struct Parent {
    /// The template's id.
    template: String,
    /// The branch that the template was taken from.
    branch: Option<String>,
}

/// The report of a creation: what was done, and how long each phase took.
#[derive(Serialize, ToSchema)]
struct Receipt {
    /// `cold`: cloned and started for this request.
    #[schema(example = "cold")]
    kind: String,
    /// The template that the branch was created from.
    template: String,
    /// The source's WAL position that the template holds.
    #[schema(example = "0/1A2B3C4D")]
    template_lsn: String,
    /// When the template's snapshot was taken, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    template_taken_at: Timestamp,
    /// Time from the request to the first possible connection, in milliseconds.
    total_ms: f64,
    /// The parts of that time, in order.
    phases: Vec<Phase>,
    /// The server that the template was taken from.
    source: SourceIdentity,
    /// What the template lacks of its origin; null if that is unknown, as for templates of earlier
    /// versions.
    losses: Option<Vec<Loss>>,
}

/// Something that a copy lacks because PostgreSQL had to recover it.
#[derive(Serialize, ToSchema)]
struct Loss {
    /// The kind of the loss.
    #[schema(schema_with = loss_kind_schema)]
    kind: LossKind,
    /// The number of lost objects; null if they are not counted.
    total: Option<u64>,
    /// The first 20 of their names, as `database.schema.relation`.
    #[schema(example = json!(["app.public.cache"]))]
    names: Vec<String>,
}

/// One measured part of a longer operation.
#[derive(Serialize, ToSchema)]
struct Phase {
    /// The name of the phase.
    #[schema(example = "clone")]
    name: String,
    /// How long it took, in milliseconds.
    #[schema(example = 9.8)]
    ms: f64,
}

/// The server that a template was taken from.
#[derive(Serialize, ToSchema)]
struct SourceIdentity {
    /// Egret's name for it.
    #[schema(example = "main")]
    name: String,
    /// PostgreSQL's system identifier of the cluster.
    system_identifier: String,
}

/// The caller's branches, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct BranchList {
    /// The branches.
    pub(super) items: Vec<Branch>,
}

/// A read-only, cleanly stopped copy that branches are cloned from.
#[derive(Serialize, ToSchema)]
pub(super) struct Template {
    /// Its id.
    id: String,
    /// The state of its lifecycle.
    #[schema(schema_with = template_state_schema)]
    state: TemplateState,
    /// Where it was taken from.
    origin: Origin,
    /// WAL position of the snapshot.
    #[schema(example = "0/1A2B3C4D")]
    lsn: String,
    /// When the snapshot was taken, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    taken_at: Timestamp,
    /// Its age in milliseconds.
    age_ms: u64,
    /// The number of existing branches that were created from it.
    branches: usize,
    /// Major version of its server.
    #[schema(example = 18)]
    postgres_major: u32,
    /// The phases of building it.
    phases: Vec<Phase>,
}

/// Where a template was taken from.
#[derive(Serialize, ToSchema)]
struct Origin {
    /// The source's name.
    #[schema(example = "main")]
    source: String,
    /// The branch, if the template was taken from one.
    branch: Option<String>,
}

/// The templates that the caller may use, oldest first.
#[derive(Serialize, ToSchema)]
pub(super) struct TemplateList {
    /// The templates.
    pub(super) items: Vec<Template>,
}

/// The volume that holds the source and its branches.
#[derive(Serialize, ToSchema)]
pub(super) struct Volume {
    /// How copies are made: `btrfs`, `reflink` or `copy`.
    #[schema(example = "btrfs")]
    driver: &'static str,
    /// Its root.
    path: String,
    /// The mounted image, if Egret created one.
    image: Option<String>,
    /// Total space, in bytes.
    size_bytes: u64,
    /// Free space, in bytes.
    free_bytes: u64,
    /// Below this free space, in bytes, no branch is created.
    free_bytes_min: u64,
    /// The cost of the driver.
    note: &'static str,
    /// How branches are isolated from the machine and from each other.
    isolation: String,
    /// How their memory, processor time and processes are limited.
    limits: String,
}

/// The result of verifying the isolation of a branch.
#[derive(Serialize, ToSchema)]
pub(super) struct Proof {
    /// The branch's name.
    branch: String,
    /// The schema, table and row that were written to the branch, and removed again.
    marker: String,
    /// Whether the marker was found in the branch.
    marker_in_branch: bool,
    /// Whether the marker was found in any database of the source.
    marker_in_source: bool,
    /// Whether the source had no writes during the check, so that checksums can be compared.
    source_quiet: bool,
    /// The number of tables of the source that were read, before and after.
    tables_checked: u64,
    /// Whether the rows of all tables are the same before and after; null if the source was not
    /// quiet.
    checksums_equal: Option<bool>,
    /// Whether all definitions are the same before and after; null if the source was not quiet.
    catalogue_equal: Option<bool>,
    /// The conclusion: whether no write of the branch reached the source.
    source_unchanged: bool,
    /// How long it took, in milliseconds.
    elapsed_ms: f64,
}

/// Whether every directory, postmaster and socket belongs to exactly one row or tombstone.
#[derive(Serialize, ToSchema)]
pub(super) struct RegistryCheck {
    /// Whether there is no finding.
    consistent: bool,
    /// Living branches, of every tenant.
    branches: usize,
    /// Templates.
    templates: usize,
    /// Destroyed branches whose files wait for deletion.
    tombstones: usize,
    /// The inconsistencies that were found.
    findings: Vec<Finding>,
}

/// An inconsistency.
#[derive(Serialize, ToSchema)]
struct Finding {
    /// The kind of the object: `branch`, `template`, `socket`, `postmaster` or `file`.
    #[schema(example = "socket")]
    what: &'static str,
    /// The name, id or path of the object.
    #[serde(rename = "where")]
    which: String,
    /// Description of the inconsistency.
    detail: String,
}

impl From<BranchView> for Branch {
    fn from(view: BranchView) -> Self {
        let branch = view.branch;
        Self {
            id: branch.id,
            name: branch.name,
            tenant: branch.tenant,
            state: branch.state,
            parent: Parent { template: branch.parent.template, branch: branch.parent.branch },
            preset: branch.preset,
            durable: branch.durable,
            superuser: branch.superuser,
            role_passwords: branch.role_passwords,
            protected: branch.protected,
            labels: branch.labels,
            settings: branch.settings,
            created_at: branch.created_at,
            expires_at: branch.expires_at,
            age_ms: view.age_ms,
            ttl_ms: branch.ttl_ms,
            sessions: view.sessions,
            diverged_bytes: view.diverged_bytes,
            failure: branch.failure,
            notice: view.notice,
            receipt: branch.receipt.map(|receipt| Receipt::new(receipt, view.losses)),
        }
    }
}

impl Receipt {
    fn new(receipt: model::Receipt, losses: Option<Vec<model::Loss>>) -> Self {
        let loss =
            |loss: model::Loss| Loss { kind: loss.kind, total: loss.total, names: loss.names };
        Self {
            kind: receipt.kind,
            template: receipt.template.to_string(),
            template_lsn: receipt.template_lsn,
            template_taken_at: receipt.template_taken_at,
            total_ms: receipt.total_ms,
            phases: phases(receipt.phases),
            source: SourceIdentity {
                name: receipt.source.name,
                system_identifier: receipt.source.system_identifier,
            },
            losses: losses.map(|losses| losses.into_iter().map(loss).collect()),
        }
    }
}

fn phases(phases: Vec<model::Phase>) -> Vec<Phase> {
    let phase = |model::Phase { name, ms }| Phase { name, ms };
    phases.into_iter().map(phase).collect()
}

impl From<TemplateView> for Template {
    fn from(view: TemplateView) -> Self {
        Self {
            id: view.id,
            state: view.state,
            origin: Origin { source: view.origin.source, branch: view.origin.branch },
            lsn: view.lsn,
            taken_at: view.taken_at,
            age_ms: view.age_ms,
            branches: view.branches,
            postgres_major: view.postgres_major,
            phases: phases(view.phases),
        }
    }
}

impl From<VolumeView> for Volume {
    fn from(view: VolumeView) -> Self {
        Self {
            driver: view.driver,
            path: view.path,
            image: view.image,
            size_bytes: view.size_bytes,
            free_bytes: view.free_bytes,
            free_bytes_min: view.free_bytes_min,
            note: view.note,
            isolation: view.isolation,
            limits: view.limits,
        }
    }
}

impl From<egret_branches::Proof> for Proof {
    fn from(proof: egret_branches::Proof) -> Self {
        Self {
            branch: proof.branch,
            marker: proof.marker,
            marker_in_branch: proof.marker_in_branch,
            marker_in_source: proof.marker_in_source,
            source_quiet: proof.source_quiet,
            tables_checked: proof.tables_checked,
            checksums_equal: proof.checksums_equal,
            catalogue_equal: proof.catalogue_equal,
            source_unchanged: proof.source_unchanged,
            elapsed_ms: proof.elapsed_ms,
        }
    }
}

impl From<egret_branches::RegistryCheck> for RegistryCheck {
    fn from(check: egret_branches::RegistryCheck) -> Self {
        let finding = |finding: egret_branches::Finding| Finding {
            what: finding.what,
            which: finding.which,
            detail: finding.detail,
        };
        Self {
            consistent: check.consistent,
            branches: check.branches,
            templates: check.templates,
            tombstones: check.tombstones,
            findings: check.findings.into_iter().map(finding).collect(),
        }
    }
}

fn state_schema() -> Object {
    string_enum(BranchState::TEXTS, "The state of its lifecycle.")
}

fn loss_kind_schema() -> Object {
    let description = "`unlogged_relations`: the content of unlogged tables and sequences. \
        `statistics`: cumulative statistics such as `pg_stat_user_tables`.";
    string_enum(LossKind::TEXTS, description)
}

fn template_state_schema() -> Object {
    string_enum(TemplateState::TEXTS, "The state of its lifecycle.")
}

pub(super) fn preset_schema() -> Object {
    let description =
        "Memory, log and checkpoint settings by purpose; `twin` has the source's own.";
    string_enum(Preset::TEXTS, description)
}
