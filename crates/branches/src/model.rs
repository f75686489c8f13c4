//! The nouns: branches, templates, what a user asks for and what is answered.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use egret_base::Timestamp;
use egret_postgres::wire::scram::Verifier;
use serde::{Deserialize, Serialize};

egret_base::define_id!(
    /// Names a branch for good; a name may be used again after a branch is destroyed.
    BranchId
);
egret_base::define_id!(
    /// Names a template, from which branches are cloned.
    TemplateId
);

/// The longest name of a branch, in characters.
pub const NAME_CHARS_MAX: usize = 63;
/// The tenant of tokens and branches when none is named.
pub const DEFAULT_TENANT: &str = "default";

/// A branch's name: lower-case letters, digits, `-` and `_`, starting with a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(transparent)]
pub struct BranchName(String);

impl BranchName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BranchName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let has_valid_start =
            text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !has_valid_start || !text.chars().all(is_allowed) || text.len() > NAME_CHARS_MAX {
            return Err(format!(
                "`{}` is not a branch name: use 1 to {NAME_CHARS_MAX} lower-case letters, digits, `-` or `_`, starting with a letter or digit",
                text.chars().take(80).collect::<String>().escape_debug()
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for BranchName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $( $(#[$variant_doc])* #[serde(rename = $text)] $variant, )*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$(Self::$variant),*];

            /// Text of every value, in the same order.
            pub const TEXTS: &'static [&'static str] = &[$($text),*];

            /// Text of the value, as it is stored and shown.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text, )* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $( $text => Ok(Self::$variant), )*
                    other => Err(format!("`{other}` is not one of {}", Self::TEXTS.join(", "))),
                }
            }
        }
    };
}

text_enum!(
    /// What a branch is doing.
    BranchState {
        /// Its files are being cloned or its first start is under way.
        Creating = "creating",
        /// Its postmaster accepts connections, or is being restarted after a crash.
        Running = "running",
        /// Its postmaster is stopped; a connection wakes it.
        Suspended = "suspended",
        /// Its files are being replaced by the template's.
        Resetting = "resetting",
        /// It cannot run; `failure` says why. A reset may help.
        Failed = "failed",
        /// Made beforehand and waiting in the pool for a request; it has no name yet.
        Pooled = "pooled",
        /// A tombstone: its name is free again, its files wait for deletion.
        Destroying = "destroying",
    }
);

text_enum!(
    /// What a template is doing.
    TemplateState {
        /// It is being snapshotted, recovered and prepared.
        Building = "building",
        /// Branches can be made from it.
        Ready = "ready",
        /// Its files wait for deletion.
        Removing = "removing",
    }
);

text_enum!(
    /// Memory, WAL and checkpoint settings of a branch, chosen by purpose.
    Preset {
        /// 16 MB of shared buffers: queries and plain writes.
        Small = "small",
        /// 32 MB: mixed work.
        Medium = "medium",
        /// 64 MB and more log: schema changes and bulk loads.
        Large = "large",
        /// The source's own settings, durable: for comparing performance.
        Twin = "twin",
    }
);

/// One measured part of a longer operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What was done, in a word or two.
    pub name: String,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

text_enum!(
    /// What kind of thing a copy loses.
    LossKind {
        /// The content of unlogged tables and sequences, which PostgreSQL resets when it recovers a
        /// copy.
        UnloggedRelations = "unlogged_relations",
        /// Cumulative statistics such as `pg_stat_user_tables`: a server writes them when it is
        /// shut down.
        Statistics = "statistics",
    }
);

/// How many lost relations of a template are named.
pub const LOSS_NAMES_MAX: usize = 20;

/// Something that a copy does not have of its origin because PostgreSQL recovered it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// What kind of thing it is.
    pub kind: LossKind,
    /// How many there are, of what can be counted.
    pub total: Option<u64>,
    /// Their names as `database.schema.relation`, at most [`LOSS_NAMES_MAX`].
    pub names: Vec<String>,
}

/// What a creation did and how long each part took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// `cold`: cloned and started for this request; `pooled`: made beforehand.
    pub kind: String,
    /// The template it was made from.
    pub template: TemplateId,
    /// The source's WAL position that the template holds.
    pub template_lsn: String,
    /// When the template's snapshot was taken.
    pub template_taken_at: Timestamp,
    /// From the request to the first possible connection, in milliseconds.
    pub total_ms: f64,
    /// The parts of that time, in order.
    pub phases: Vec<Phase>,
    /// The server that the template was taken from.
    pub source: SourceIdentity,
}

/// Which server a template was taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceIdentity {
    /// Egret's name for it.
    pub name: String,
    /// PostgreSQL's system identifier of the cluster.
    pub system_identifier: String,
}

/// A read-only, cleanly stopped copy that branches are cloned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// Id of the template.
    pub id: TemplateId,
    /// What it is doing.
    pub state: TemplateState,
    /// The branch it was taken from; `None` when from the source's head.
    pub origin_branch: Option<BranchId>,
    /// The tenant of that branch, which alone may use the template; `None` for the source's, which
    /// all tenants may use.
    pub tenant: Option<String>,
    /// That branch's name at the time.
    pub origin_branch_name: Option<BranchName>,
    /// Identity of the server it was taken from.
    pub source: SourceIdentity,
    /// WAL position of the snapshot.
    pub lsn: String,
    /// When the snapshot was taken.
    pub taken_at: Timestamp,
    /// Major version of the server.
    pub postgres_major: u32,
    /// Libraries that its copies preload.
    pub preload_libraries: String,
    /// What building it took.
    pub phases: Vec<Phase>,
    /// What it lost of its origin; `None` while that is not known, as of templates of earlier
    /// versions.
    #[serde(default)]
    pub losses: Option<Vec<Loss>>,
    /// Whether a superuser has worked on its origin: what that user left there, such as other
    /// superusers, cannot be found for certain, so that all its copies are a superuser's too.
    #[serde(default)]
    pub superuser: bool,
}

impl Template {
    /// Whether a tenant may make branches of it.
    pub(crate) fn is_usable_by(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|owner| owner == tenant)
    }
}

/// A writable copy with a postmaster of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// Id of the branch.
    pub id: BranchId,
    /// Tenant that it belongs to.
    pub tenant: String,
    /// Its name, unique within the tenant among living branches.
    pub name: BranchName,
    /// What it is doing.
    pub state: BranchState,
    /// The template that it was cloned from and is reset to.
    pub template: TemplateId,
    /// The branch that its template was taken from.
    pub parent_branch: Option<BranchName>,
    /// Where the request said it should come from.
    pub from: BranchSource,
    /// Settings chosen by purpose.
    pub preset: Preset,
    /// Whether it survives a crash of the machine.
    pub durable: bool,
    /// Whether its role is a superuser of it.
    #[serde(default)]
    pub superuser: bool,
    /// Whether roles of the application enter it with the passwords that they have in the source.
    #[serde(default)]
    pub role_passwords: bool,
    /// Whether it is suspended because its tenant took too much of the volume: it starts again when
    /// there is room.
    #[serde(default)]
    pub waits_for_room: bool,
    /// Why it is suspended, where its users did not ask for that.
    #[serde(default)]
    pub notice: Option<String>,
    /// Whether it refuses to be destroyed, reset or expired.
    pub protected: bool,
    /// Settings one by one, over the preset.
    pub settings: BTreeMap<String, String>,
    /// The user's own marks.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its lifetime in milliseconds.
    pub ttl_ms: Option<u64>,
    /// When it is destroyed by itself.
    pub expires_at: Option<Timestamp>,
    /// Why it failed, if it has.
    pub failure: Option<String>,
    /// What its creation did.
    pub receipt: Option<Receipt>,
    /// The boot of the machine that its postmaster was last started in; `None` after a clean stop
    /// that reached the disk.
    pub boot_id: Option<String>,
    /// Its postmaster's pid and start time in clock ticks.
    pub postmaster: Option<(i32, u64)>,
}

/// Where a branch is to come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum BranchSource {
    /// The newest template of the source, built when there is none.
    #[default]
    NewestTemplate,
    /// A template made now.
    Head,
    /// The template with this id.
    Template(TemplateId),
    /// Another branch as it is now.
    Branch(BranchName),
}

impl fmt::Display for BranchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BranchSource::NewestTemplate => f.write_str("template"),
            BranchSource::Head => f.write_str("head"),
            BranchSource::Template(id) => write!(f, "template:{id}"),
            BranchSource::Branch(name) => write!(f, "branch:{name}"),
        }
    }
}

impl FromStr for BranchSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "template" => Ok(BranchSource::NewestTemplate),
            None if text == "head" => Ok(BranchSource::Head),
            Some(("template", id)) => id.parse().map(BranchSource::Template),
            Some(("branch", name)) => name.parse().map(BranchSource::Branch),
            _ => Err(format!(
                "`{text}` is not an origin: use template, head, template:ID or branch:NAME"
            )),
        }
    }
}

/// What a user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct NewBranch {
    /// Name of the new branch.
    pub name: BranchName,
    /// Tenant that it will belong to.
    pub tenant: String,
    /// What it is copied from.
    pub from: BranchSource,
    /// Lifetime in milliseconds; `None` for the default.
    pub ttl_ms: Option<u64>,
    /// Whether it survives a crash of the machine.
    pub durable: bool,
    /// Whether its role is a superuser of it.
    pub superuser: bool,
    /// Whether roles of the application enter it with the passwords that they have in the source.
    pub role_passwords: bool,
    /// Settings chosen by purpose.
    pub preset: Preset,
    /// Settings one by one.
    pub settings: BTreeMap<String, String>,
    /// Labels set by the user.
    pub labels: BTreeMap<String, String>,
    /// Whether it is protected from the start.
    pub protected: bool,
}

impl NewBranch {
    /// A request with nothing but a name.
    pub fn named(name: BranchName) -> Self {
        Self {
            name,
            tenant: DEFAULT_TENANT.to_owned(),
            from: BranchSource::NewestTemplate,
            ttl_ms: None,
            durable: false,
            superuser: false,
            role_passwords: false,
            preset: Preset::Small,
            settings: BTreeMap::new(),
            labels: BTreeMap::new(),
            protected: false,
        }
    }
}

/// A change to a branch that needs no restart; `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BranchUpdate {
    /// New value of `protected`, which refuses destruction.
    pub protected: Option<bool>,
    /// A new lifetime from now in milliseconds, or none.
    pub ttl_ms: Option<Option<u64>>,
    /// New labels, replacing the old.
    pub labels: Option<BTreeMap<String, String>>,
}

/// The password of a role as the source keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePassword {
    /// Name of the role.
    pub role: String,
    /// What checks the password.
    pub verifier: Arc<Verifier>,
    /// When it ends (`VALID UNTIL`).
    pub valid_until: Option<Timestamp>,
}

/// How to connect to a branch through the proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Role to connect as.
    pub user: String,
    /// Password of the role.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials {{ user: {:?}, password: … }}", self.user)
    }
}

#[cfg(test)]
mod tests;
