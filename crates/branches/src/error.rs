//! What can go wrong with branches.

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base::{CodedError, Kind, LimitExceeded};
use egret_linux::directory::DepthExceeded;
use egret_postgres::PostgresError;
use egret_postgres::wire::WireError;
use egret_state::StateError;

/// An error of the branches engine.
#[derive(Debug, thiserror::Error)]
pub enum BranchesError {
    /// No branch has this name.
    #[error("branch `{name}` does not exist: `egret branch list` lists the existing ones")]
    NotFound {
        /// Name that was asked for.
        name: String,
    },
    /// The branch has no such database.
    #[error("branch `{name}` has no database `{database}`: it has {existing}")]
    DatabaseNotFound {
        /// Name of the branch.
        name: String,
        /// Name of the missing database.
        database: String,
        /// The first of those that it has.
        existing: String,
    },
    /// No template has this id, or there is none yet.
    #[error("template {id} does not exist: `egret branch template list` lists the existing ones")]
    TemplateNotFound {
        /// Id that was asked for.
        id: String,
    },
    /// The name is in use by a branch that was asked for differently.
    #[error("branch `{name}` exists with {differs}: choose another name or destroy it first")]
    NameTaken {
        /// Name that is in use.
        name: String,
        /// What differs, with its article: `another preset`, `other settings`.
        differs: &'static str,
    },
    /// A value of the request cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// Which part of the request.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The branch is protected.
    #[error("branch `{name}` is protected: set its `protected` to false first")]
    Protected {
        /// Name of the branch.
        name: String,
    },
    /// Other branches were made from this one.
    #[error(
        "branch `{name}` has children ({children}): destroy them first, or set `children` to destroy them with it"
    )]
    HasChildren {
        /// Name of the branch.
        name: String,
        /// Names of the children, separated by commas.
        children: String,
    },
    /// It has descendants that the caller has no right to.
    #[error(
        "branch `{name}` has {count} descendants that the scopes of this token do not cover: use a token that covers all of them"
    )]
    ChildrenBeyondScopes {
        /// Name of the branch.
        name: String,
        /// Number of descendants that the scopes do not cover.
        count: usize,
    },
    /// The template was taken of the branch itself or of one that descends from it.
    #[error(
        "template {template} was taken from `{origin}`, which is `{name}` or descends from it: a \
         branch cannot become its own descendant; create a new branch `from` template:{template} \
         instead"
    )]
    Cycle {
        /// The branch that was to be reset.
        name: String,
        /// Id of the template.
        template: String,
        /// The branch that the template was taken of.
        origin: String,
    },
    /// The branch is not in a state for this.
    #[error("branch `{name}` is {state}: {hint}")]
    WrongState {
        /// Name of the branch.
        name: String,
        /// Its state, as the API shows it.
        state: &'static str,
        /// What the caller can do.
        hint: String,
    },
    /// The lifetime of the branch is over.
    #[error("branch `{name}` expired at {at}")]
    Expired {
        /// Name of the branch.
        name: String,
        /// When its lifetime ended.
        at: egret_base::Timestamp,
    },
    /// A named limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A named limit on a size is reached.
    #[error("limit {name} is {max}, but {asked} is needed: ask for less or raise the setting")]
    SizeLimit {
        /// Name of the setting.
        name: &'static str,
        /// The largest size allowed.
        max: ByteSize,
        /// The size that was asked for.
        asked: ByteSize,
    },
    /// A size of a pool is beyond its limit, which no wait changes.
    #[error(transparent)]
    PoolSize(LimitExceeded),
    /// As many templates exist as there may be.
    #[error(
        "limit branches.templates_max is {max}: every branch created `from` branch:NAME or head \
         holds a template; destroy such branches, create new ones `from` template:ID, or raise the \
         setting"
    )]
    TemplatesFull {
        /// Value of setting `branches.templates_max`.
        max: u32,
    },
    /// The branches of a tenant hold as many templates as they may.
    #[error(
        "limit branches.tenant_templates_max is {max}: every branch of the tenant that was \
         created `from` branch:NAME or head holds a template; destroy such branches, create new \
         ones `from` template:ID, or raise the setting"
    )]
    TenantTemplatesFull {
        /// Value of setting `branches.tenant_templates_max`.
        max: u32,
    },
    /// What a tenant has destroyed was not deleted in time, and it is not known whether there is
    /// room without it.
    #[error(
        "files of destroyed branches of the tenant are still being deleted after \
         branches.tenant_purge_timeout ({timeout}), and they count towards \
         branches.tenant_disk_max, which is used up: try again in a moment"
    )]
    DeletionLasts {
        /// Value of setting `branches.tenant_purge_timeout`.
        timeout: ConfigDuration,
    },
    /// The volume has too little room.
    #[error(
        "the volume has {free} free, but {needed} is needed (branches.free_min and, where every \
         byte is copied, the size of the copy): destroy branches"
    )]
    VolumeFull {
        /// Free room of the volume.
        free: ByteSize,
        /// Room that must be free.
        needed: ByteSize,
    },
    /// The volume cannot be made or used.
    #[error("volume: {reason}")]
    Volume {
        /// What failed and what to do.
        reason: String,
    },
    /// Branches cannot be kept apart as the configuration asks for.
    #[error("branches cannot be isolated: {reason}")]
    Isolation {
        /// What the machine lacks for it.
        reason: String,
    },
    /// The source cannot be branched.
    #[error("the source cannot be branched: {reason}")]
    Source {
        /// Why it cannot be branched.
        reason: String,
    },
    /// An operation on files failed.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was attempted, with its verb: `remove`, `snapshot`.
        doing: &'static str,
        /// Path that it was attempted on.
        path: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// PostgreSQL under the branch or the source failed.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The statement failed or the session broke.
    #[error("{0}")]
    Query(#[from] WireError),
    /// The session was ended while it ran the statement, and the server runs on.
    #[error(
        "the session was terminated while it ran the statement: by the statement itself, as \
         pg_terminate_backend(pg_backend_pid()) does, or by another session of the branch"
    )]
    SessionEnded,
    /// The process of the session ended without an answer, by what this statement or another
    /// session of the branch did, and the server runs on.
    #[error(
        "a process of the branch's server crashed or was killed, by this statement or by another \
         session of the branch; the server ended all sessions and is recovering. `egret branch \
         show` says if it ran out of memory; repeating the statement may cause this again"
    )]
    SessionCrashed,
    /// The statement ran too long.
    #[error("the query ran longer than branches.query_timeout ({timeout_ms} ms) and was cancelled")]
    QueryTimeout {
        /// The limit in milliseconds.
        timeout_ms: u64,
    },
    /// A server that runs code of a branch did not do in time what Egret asked of it.
    #[error(
        "the server of {subject} did not answer Egret within branches.server_timeout \
         ({timeout_ms} ms): check the locks, views and settings that users of the branch created"
    )]
    ServerTimeout {
        /// The branch or template.
        subject: String,
        /// The limit in milliseconds.
        timeout_ms: u64,
    },
    /// The source was not read in time for a proof of isolation.
    #[error(
        "cannot verify branch `{name}`: reading the source took longer than \
         branches.verify_timeout ({timeout_ms} ms); look for locks on tables of the source, or \
         raise the setting if the source is large"
    )]
    VerifyTimeout {
        /// Name of the branch.
        name: String,
        /// The limit in milliseconds.
        timeout_ms: u64,
    },
    /// Such a server answered with more than Egret takes.
    #[error(
        "the server of {subject} answered Egret with more than branches.server_answer_max \
         ({max}): check the views that users of the branch created in schema pg_catalog"
    )]
    ServerAnswer {
        /// The branch or template.
        subject: String,
        /// Value of setting `branches.server_answer_max`.
        max: ByteSize,
    },
    /// A read or write of the registry failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine has not started yet, or is stopping.
    #[error("egret is starting or stopping: try again")]
    Stopping,
}

impl CodedError for BranchesError {
    fn code(&self) -> &'static str {
        match self {
            BranchesError::NotFound { .. } => "branch_not_found",
            BranchesError::DatabaseNotFound { .. } => "branch_database_not_found",
            BranchesError::TemplateNotFound { .. } => "template_not_found",
            BranchesError::NameTaken { .. } => "branch_name_taken",
            BranchesError::Invalid { .. } => "invalid_request",
            BranchesError::Protected { .. } => "branch_protected",
            BranchesError::HasChildren { .. } => "branch_has_children",
            BranchesError::ChildrenBeyondScopes { .. } => "branch_children_beyond_scopes",
            BranchesError::Cycle { .. } => "branch_cycle",
            BranchesError::WrongState { .. } => "branch_wrong_state",
            BranchesError::Expired { .. } => "branch_expired",
            BranchesError::Limit(limit) | BranchesError::PoolSize(limit) => limit.code(),
            BranchesError::SizeLimit { .. }
            | BranchesError::TemplatesFull { .. }
            | BranchesError::TenantTemplatesFull { .. } => "limit_exceeded",
            BranchesError::DeletionLasts { .. } => "branch_deletion_lasts",
            BranchesError::VolumeFull { .. } => "volume_full",
            BranchesError::Volume { .. } => "volume_unusable",
            BranchesError::Isolation { .. } => "branch_isolation",
            BranchesError::Source { .. } => "source_unusable",
            BranchesError::Io { .. } => "branch_files",
            BranchesError::Postgres(error) => error.code(),
            BranchesError::Query(error) => error.code(),
            BranchesError::SessionEnded => "branch_session_ended",
            BranchesError::SessionCrashed => "branch_session_crashed",
            BranchesError::QueryTimeout { .. } => "query_timeout",
            BranchesError::ServerTimeout { .. } => "branch_server_timeout",
            BranchesError::VerifyTimeout { .. } => "branch_verify_timeout",
            BranchesError::ServerAnswer { .. } => "branch_server_answer",
            BranchesError::State(error) => error.code(),
            BranchesError::Stopping => "stopping",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            BranchesError::NotFound { .. }
            | BranchesError::DatabaseNotFound { .. }
            | BranchesError::TemplateNotFound { .. }
            | BranchesError::Expired { .. } => Kind::NotFound,
            BranchesError::Invalid { .. }
            | BranchesError::PoolSize(_)
            | BranchesError::SessionEnded
            | BranchesError::SessionCrashed => Kind::Invalid,
            BranchesError::NameTaken { .. }
            | BranchesError::Protected { .. }
            | BranchesError::HasChildren { .. }
            | BranchesError::WrongState { .. }
            | BranchesError::Cycle { .. }
            | BranchesError::Source { .. }
            | BranchesError::Isolation { .. }
            | BranchesError::Volume { .. } => Kind::Conflict,
            BranchesError::ChildrenBeyondScopes { .. } => Kind::Denied,
            BranchesError::Limit(limit) => limit.kind(),
            BranchesError::SizeLimit { .. }
            | BranchesError::TemplatesFull { .. }
            | BranchesError::TenantTemplatesFull { .. } => Kind::LimitReached,
            BranchesError::DeletionLasts { .. }
            | BranchesError::VolumeFull { .. }
            | BranchesError::Stopping => Kind::Unavailable,
            BranchesError::Io { .. } => Kind::Internal,
            BranchesError::Postgres(error) => error.kind(),
            BranchesError::Query(error) => error.kind(),
            BranchesError::QueryTimeout { .. }
            | BranchesError::ServerTimeout { .. }
            | BranchesError::VerifyTimeout { .. } => Kind::TimedOut,
            BranchesError::ServerAnswer { .. } => Kind::Conflict,
            BranchesError::State(error) => error.kind(),
        }
    }
}

impl BranchesError {
    /// A limit that counts bytes, shown as its setting is.
    pub(crate) fn from_size_limit(exceeded: LimitExceeded) -> Self {
        BranchesError::SizeLimit {
            name: exceeded.name,
            max: ByteSize(exceeded.max).rounded_down(),
            asked: ByteSize(exceeded.asked).rounded_up(),
        }
    }

    /// Whether there is no room for what was to be done: on the volume, within a limit, or for a
    /// server.
    pub(crate) fn is_without_room(&self) -> bool {
        let is_limited = matches!(
            self,
            BranchesError::VolumeFull { .. }
                | BranchesError::Limit(_)
                | BranchesError::SizeLimit { .. }
                | BranchesError::DeletionLasts { .. }
        );
        is_limited || self.is_disk_full() || self.is_servers_full()
    }

    /// Whether the cause lies outside of the branch that something was to be done with: there is no
    /// room, the registry cannot be written, or Egret stops.
    pub(crate) fn is_external(&self) -> bool {
        self.is_without_room() || matches!(self, BranchesError::State(_) | BranchesError::Stopping)
    }

    /// Whether the file system has no room.
    pub(crate) fn is_disk_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let BranchesError::Io { source, .. } = self else {
            return false;
        };
        matches!(source.kind(), QuotaExceeded | StorageFull)
    }

    /// Whether a server did not start only because those of all branches have what they may.
    fn is_servers_full(&self) -> bool {
        matches!(
            self,
            BranchesError::Postgres(
                PostgresError::NoUserLeft { .. } | PostgresError::NoProcessLeft { .. }
            )
        )
    }
}

/// Wraps an operating-system error with what was attempted on which path.
pub(crate) fn io_error(
    doing: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(std::io::Error) -> BranchesError {
    let path = path.display().to_string();
    move |source| match source.get_ref().and_then(|inner| inner.downcast_ref()) {
        // The tree is at fault and not the file system.
        Some(depth @ DepthExceeded { .. }) => BranchesError::Source { reason: depth.to_string() },
        None => BranchesError::Io { doing, path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;

    use super::*;

    #[test]
    fn want_of_room_is_told_from_other_failures() {
        let io_failure = |kind: ErrorKind| io_error("clone", Path::new("template"))(kind.into());
        for error in [
            io_failure(ErrorKind::StorageFull),
            io_failure(ErrorKind::QuotaExceeded),
            BranchesError::VolumeFull { free: ByteSize(0), needed: ByteSize::mib(64) },
            BranchesError::Postgres(PostgresError::NoProcessLeft { max: 10 }),
        ] {
            assert!(error.is_without_room() && error.is_external(), "{error}");
        }
        assert!(BranchesError::Stopping.is_external());
        for error in [
            io_failure(ErrorKind::NotFound),
            io_failure(ErrorKind::PermissionDenied),
            BranchesError::Stopping,
        ] {
            assert!(!error.is_without_room(), "{error}");
        }
    }
}
