//! What can go wrong with queues and tasks.

use std::sync::Arc;

use egret_base::{Coded, Kind, LimitExceeded, RhythmError};
use egret_log::{LogError, Seq};
use egret_postgres::{DatabasesError, PostgresError};

use crate::core::command::Refusal;
use egret_base::codec::Malformed;

/// An error of the queue engine. Cheap to clone: everybody who waited for one batch is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// No queue has this name.
    #[error(
        "queue `{name}` does not exist: create it with `egret queue create {name}`, or set queue.create_on_demand"
    )]
    QueueNotFound {
        /// The name.
        name: String,
    },
    /// The queue takes nothing in.
    #[error("the queue is draining: nothing is enqueued until `egret queue resume`")]
    Draining,
    /// The queue still has tasks or schedules.
    #[error("queue `{name}` has {what}: delete them first, or set `force` to delete them with it")]
    QueueInUse {
        /// The name.
        name: String,
        /// What it has.
        what: String,
    },
    /// No task has this id.
    #[error("task {id} does not exist: it may have been deleted, or its retention is over")]
    TaskNotFound {
        /// The id.
        id: String,
    },
    /// The task is not in a state for this.
    #[error("the task is {state}: {hint}")]
    WrongState {
        /// Its state.
        state: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The lease is not the task's any longer.
    #[error("the lease is over: it expired, or the task was cancelled; another worker may have it")]
    LeaseLost,
    /// No schedule has this name.
    #[error("schedule `{name}` does not exist: `egret queue cron list` shows those that do")]
    ScheduleNotFound {
        /// The name.
        name: String,
    },
    /// A value of the request cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// Which part of the request.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A payload or result is larger than its limit.
    #[error("{what} has {size_bytes} bytes, but {limit} is {max_bytes}: send a reference instead")]
    TooLarge {
        /// Which part of the request.
        what: &'static str,
        /// Its size.
        size_bytes: u64,
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        max_bytes: u64,
    },
    /// A named limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The disk has no room for new tasks; those there are can be worked on.
    #[error(
        "the disk of the queue is full: nothing is enqueued until there is room for {needed_bytes} bytes; tasks that are there can be worked on, and whoever runs Egret finds the directory in its log"
    )]
    DiskFull {
        /// How much is kept back for work on tasks.
        needed_bytes: u64,
    },
    /// The disk has no room for an attachment.
    #[error(
        "the disk of the queue is full: attachment `{name}` was not written; free space, or delete tasks that have attachments"
    )]
    NoRoom {
        /// The attachment's name.
        name: String,
    },
    /// The task was not completed with such an attachment, or none was taken in under the lease.
    #[error(
        "attachment `{name}` of task {id} does not exist: only what was sent whole can be named"
    )]
    AttachmentNotFound {
        /// The task's id.
        id: String,
        /// The attachment's name.
        name: String,
    },
    /// There is another one of this name.
    #[error(
        "attachment `{name}` was sent under this lease before, with other bytes: use another name"
    )]
    AttachmentExists {
        /// The attachment's name.
        name: String,
    },
    /// The file of an attachment is not what was written.
    #[error("attachment `{name}` of task {id} is damaged: its file is not what was sent")]
    AttachmentDamaged {
        /// The task's id.
        id: String,
        /// The attachment's name.
        name: String,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What is on disk cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A record of a log does not follow from those before it.
    #[error(
        "partition {partition} of the queue: record {seq} of its log is refused in a replay ({reason}), so what came before it is not what it was: restore it from a backup"
    )]
    Diverged {
        /// Which partition.
        partition: usize,
        /// Which record.
        seq: Seq,
        /// Why the state refuses it.
        reason: String,
    },
    /// An operation on files failed.
    #[error("{doing} {path}: {reason}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// Where.
        path: String,
        /// The operating system's error.
        reason: String,
    },
    /// There is no outbox.
    #[error("{}", no_outbox(.database.as_deref()))]
    OutboxNotFound {
        /// The database that was named.
        database: Option<String>,
    },
    /// An outbox still has rows.
    #[error(
        "the outbox of database `{database}` has {waiting} rows that wait and {rejected} that were rejected: wait until they are tasks, or set `force` to remove them with it"
    )]
    OutboxInUse {
        /// The database.
        database: String,
        /// Rows that wait.
        waiting: u64,
        /// Rows that were refused for good.
        rejected: u64,
    },
    /// PostgreSQL failed, of which only outboxes have need.
    #[error(transparent)]
    Postgres(#[from] Arc<PostgresError>),
    /// A partition could not be started with what is on disk, or cannot go on with it.
    #[error("partition {partition} of the queue does not work: {reason}")]
    PartitionUnusable {
        /// Which one.
        partition: usize,
        /// What is wrong; files are named by their paths in the data directory.
        reason: String,
    },
    /// A partition has ended by an error of Egret.
    #[error(
        "partition {partition} of the queue has ended by an error of Egret, which its log tells: restart it; nothing acknowledged is lost"
    )]
    PartitionFailed {
        /// Which one.
        partition: usize,
    },
    /// The engine is not running.
    #[error("egret is stopping: try again when it has started")]
    Stopping,
}

impl QueueError {
    /// The partition that has failed, where that is the error.
    pub(crate) fn failed_partition(&self) -> Option<usize> {
        match self {
            Self::PartitionUnusable { partition, .. } | Self::PartitionFailed { partition } => {
                Some(*partition)
            }
            _ => None,
        }
    }
}

/// Limits of what goes only when it is deleted: to wait does not help.
const LASTING_LIMITS: [&str; 4] = [
    "queue.queues_max",
    "queue.tenant_queues_max",
    "queue.schedules_max",
    "queue.tenant_schedules_max",
];

impl Coded for QueueError {
    fn code(&self) -> &'static str {
        match self {
            QueueError::QueueNotFound { .. } => "queue_not_found",
            QueueError::Draining => "queue_draining",
            QueueError::QueueInUse { .. } => "queue_in_use",
            QueueError::TaskNotFound { .. } => "task_not_found",
            QueueError::WrongState { .. } => "task_wrong_state",
            QueueError::LeaseLost => "lease_lost",
            QueueError::ScheduleNotFound { .. } => "schedule_not_found",
            QueueError::Invalid { .. } => "invalid_request",
            QueueError::TooLarge { .. } => "payload_too_large",
            QueueError::Limit(limit) => limit.code(),
            QueueError::DiskFull { .. } | QueueError::NoRoom { .. } => "queue_disk_full",
            QueueError::AttachmentNotFound { .. } => "attachment_not_found",
            QueueError::AttachmentExists { .. } => "attachment_exists",
            QueueError::AttachmentDamaged { .. } => "attachment_damaged",
            QueueError::Log(error) => error.code(),
            QueueError::Malformed(_) | QueueError::Diverged { .. } => "queue_corrupt",
            QueueError::Io { .. } => "queue_files",
            QueueError::OutboxNotFound { .. } => "outbox_not_found",
            QueueError::OutboxInUse { .. } => "outbox_in_use",
            QueueError::Postgres(error) => error.code(),
            QueueError::PartitionFailed { .. } | QueueError::PartitionUnusable { .. } => {
                "queue_partition_failed"
            }
            QueueError::Stopping => "stopping",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            QueueError::QueueNotFound { .. }
            | QueueError::TaskNotFound { .. }
            | QueueError::AttachmentNotFound { .. }
            | QueueError::OutboxNotFound { .. }
            | QueueError::ScheduleNotFound { .. } => Kind::NotFound,
            QueueError::Draining
            | QueueError::QueueInUse { .. }
            | QueueError::OutboxInUse { .. }
            | QueueError::WrongState { .. }
            | QueueError::AttachmentExists { .. }
            | QueueError::LeaseLost => Kind::Conflict,
            QueueError::Invalid { .. } => Kind::Invalid,
            QueueError::TooLarge { .. } => Kind::TooLarge,
            QueueError::Limit(limit) => limit.kind(),
            QueueError::DiskFull { .. }
            | QueueError::NoRoom { .. }
            | QueueError::PartitionFailed { .. }
            | QueueError::PartitionUnusable { .. }
            | QueueError::Stopping => Kind::Unavailable,
            QueueError::Log(error) => error.kind(),
            QueueError::Postgres(error) => error.kind(),
            QueueError::Malformed(_)
            | QueueError::Diverged { .. }
            | QueueError::Io { .. }
            | QueueError::AttachmentDamaged { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            QueueError::Limit(limit) => !LASTING_LIMITS.contains(&limit.name),
            _ => matches!(
                self.kind(),
                Kind::Unavailable | Kind::LimitReached | Kind::TimedOut
            ),
        }
    }
}

impl From<Refusal> for QueueError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TaskUnknown => QueueError::TaskNotFound {
                id: "asked for".to_owned(),
            },
            Refusal::QueueUnknown => QueueError::QueueNotFound {
                name: "asked for".to_owned(),
            },
            Refusal::Draining => QueueError::Draining,
            Refusal::LeaseLost => QueueError::LeaseLost,
            Refusal::WrongState(state) => QueueError::WrongState {
                state: state.as_str(),
                hint: match state.has_ended() {
                    true => {
                        "it has ended; `egret queue requeue` puts dead and cancelled tasks back"
                    }
                    false => "wait until it has ended, or cancel it",
                },
            },
            Refusal::ScheduleUnknown => QueueError::ScheduleNotFound {
                name: "asked for".to_owned(),
            },
        }
    }
}

impl From<PostgresError> for QueueError {
    fn from(error: PostgresError) -> Self {
        QueueError::Postgres(Arc::new(error))
    }
}

impl From<DatabasesError> for QueueError {
    fn from(error: DatabasesError) -> Self {
        match error {
            DatabasesError::Postgres(error) => error.into(),
            // Outboxes are an administrator's.
            DatabasesError::Unknown { .. } => PostgresError::DatabaseNotFound {
                reason: format!("database: {}", error.with_names()),
            }
            .into(),
            DatabasesError::Several { .. } => QueueError::Invalid {
                what: "database",
                reason: error.with_names(),
            },
        }
    }
}

impl From<RhythmError> for QueueError {
    fn from(error: RhythmError) -> Self {
        QueueError::Invalid {
            what: match error {
                RhythmError::Cron { .. } => "cron",
                RhythmError::TimeZone { .. } => "time_zone",
            },
            reason: error.to_string(),
        }
    }
}

fn no_outbox(database: Option<&str>) -> String {
    match database {
        Some(name) => format!(
            "database `{name}` has no outbox: `egret queue outbox install --database {name}` makes it"
        ),
        None => "no database has an outbox: `egret queue outbox install` makes one".to_owned(),
    }
}

/// Wraps an operating-system error with what was attempted on which path.
pub(crate) fn io(
    doing: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(std::io::Error) -> QueueError {
    let path = path.display().to_string();
    move |error| QueueError::Io {
        doing,
        path,
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
