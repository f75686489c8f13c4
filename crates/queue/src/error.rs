//! What can go wrong with queues and tasks.

use std::sync::Arc;

use egret_base::{CodedError, CronScheduleError, Kind, LimitExceeded};
use egret_log::{LogError, Seq};
use egret_postgres::{DatabasesError, PostgresError};

use crate::core::command::Refusal;
use egret_base::codec::DecodeError;

/// An error of the queue engine. Cheap to clone: all callers that waited for one batch get the same
/// error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// No queue has this name.
    #[error(
        "queue `{name}` does not exist: create it with `egret queue create {name}`, or set queue.create_on_demand"
    )]
    QueueNotFound {
        /// Name that was looked up.
        name: String,
    },
    /// The queue takes nothing in.
    #[error("the queue is draining: nothing is enqueued until `egret queue resume`")]
    Draining,
    /// The queue still has tasks or schedules.
    #[error("queue `{name}` has {what}: delete them first, or set `force` to delete them with it")]
    QueueInUse {
        /// Name of the queue.
        name: String,
        /// What the queue still has.
        what: String,
    },
    /// No task has this id.
    #[error("task {id} does not exist: it may have been deleted, or its retention is over")]
    TaskNotFound {
        /// Id that was looked up.
        id: String,
    },
    /// The task is not in a state for this.
    #[error("the task is {state}: {hint}")]
    WrongState {
        /// State of the task.
        state: &'static str,
        /// What the caller can do.
        hint: &'static str,
    },
    /// The lease is not the task's any longer.
    #[error(
        "the lease has ended: it expired, or the task was cancelled; another worker may hold the task now"
    )]
    LeaseLost,
    /// No schedule has this name.
    #[error("schedule `{name}` does not exist: `egret queue cron list` shows those that do")]
    ScheduleNotFound {
        /// Name that was looked up.
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
        /// Its size, in bytes.
        size_bytes: u64,
        /// Name of the limit's setting.
        limit: &'static str,
        /// The limit, in bytes.
        max_bytes: u64,
    },
    /// A named limit is reached.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The disk has no room for new tasks; those there are can be worked on.
    #[error(
        "the disk of the queue is full: nothing is enqueued until {needed_bytes} bytes are free; \
         existing tasks can still be worked on, and Egret's log names the directory"
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
        /// Name of the attachment.
        name: String,
    },
    /// The task was not completed with such an attachment, or none was taken in under the lease.
    #[error(
        "attachment `{name}` of task {id} does not exist: upload it completely before the result \
         names it"
    )]
    AttachmentNotFound {
        /// Id of the task.
        id: String,
        /// Name of the attachment.
        name: String,
    },
    /// There is another one of this name.
    #[error(
        "attachment `{name}` was already sent under this lease with different content: use \
         another name"
    )]
    AttachmentExists {
        /// Name of the attachment.
        name: String,
    },
    /// The file of an attachment is not what was written.
    #[error("attachment `{name}` of task {id} is damaged: the file differs from what was uploaded")]
    AttachmentDamaged {
        /// Id of the task.
        id: String,
        /// Name of the attachment.
        name: String,
    },
    /// An operation of the log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// What is on disk cannot be read.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A snapshot of a partition is not what was written, or ends too early.
    #[error(
        "the snapshot {path} is damaged ({reason}): restore it from a backup, or see what `egret repair` would do"
    )]
    SnapshotDamaged {
        /// Path of the snapshot's file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A record of a log does not follow from those before it.
    #[error(
        "partition {partition} of the queue: record {seq} of its log cannot be replayed \
         ({reason}), so earlier records are missing or damaged: restore it from a backup"
    )]
    Diverged {
        /// Number of the partition.
        partition: usize,
        /// Number of the record.
        seq: Seq,
        /// Why the state refuses it.
        reason: String,
    },
    /// An operation on files failed.
    #[error("{doing} {path}: {reason}")]
    Io {
        /// Operation that was attempted.
        doing: &'static str,
        /// Path of the file.
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
        "the outbox of database `{database}` has {waiting} waiting and {rejected} rejected rows: \
         wait until they have become tasks, or set `force` to delete them with it"
    )]
    OutboxInUse {
        /// Name of the database.
        database: String,
        /// Number of waiting rows.
        waiting: u64,
        /// Rows that were refused for good.
        rejected: u64,
    },
    /// An outbox is not brought up to date, as transactions have its table open.
    #[error(
        "cannot upgrade the outbox, because other transactions use egret.outbox: {transactions}; \
         end them, or try again later"
    )]
    OutboxBusy {
        /// Some of them, with their processes and roles.
        transactions: String,
    },
    /// An outbox is not brought up to date, as foreign keys of users refer to its primary key.
    #[error(
        "cannot upgrade the outbox, because foreign keys refer to the primary key of \
         egret.outbox, which is replaced: drop them with `{commands}`"
    )]
    OutboxReferenced {
        /// The statements that drop them.
        commands: String,
    },
    /// PostgreSQL failed, of which only outboxes have need.
    #[error(transparent)]
    Postgres(#[from] Arc<PostgresError>),
    /// A partition could not be started with what is on disk, or cannot go on with it.
    #[error("partition {partition} of the queue has failed: {reason}")]
    PartitionUnusable {
        /// Number of the partition.
        partition: usize,
        /// What is wrong; files are named by their paths in the data directory.
        reason: String,
    },
    /// A partition has ended by an error of Egret.
    #[error(
        "partition {partition} of the queue has stopped because of an error in Egret (see its \
         log): restart Egret; nothing acknowledged is lost"
    )]
    PartitionFailed {
        /// Number of the partition.
        partition: usize,
    },
    /// The engine is not running.
    #[error("egret is starting or stopping: try again")]
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
const PERMANENT_LIMITS: [&str; 4] = [
    "queue.queues_max",
    "queue.tenant_queues_max",
    "queue.schedules_max",
    "queue.tenant_schedules_max",
];

impl CodedError for QueueError {
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
            QueueError::Malformed(_)
            | QueueError::SnapshotDamaged { .. }
            | QueueError::Diverged { .. } => "queue_corrupt",
            QueueError::Io { .. } => "queue_files",
            QueueError::OutboxNotFound { .. } => "outbox_not_found",
            QueueError::OutboxInUse { .. } => "outbox_in_use",
            QueueError::OutboxBusy { .. } => "outbox_busy",
            QueueError::OutboxReferenced { .. } => "outbox_referenced",
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
            | QueueError::OutboxReferenced { .. }
            | QueueError::WrongState { .. }
            | QueueError::AttachmentExists { .. }
            | QueueError::LeaseLost => Kind::Conflict,
            QueueError::Invalid { .. } => Kind::Invalid,
            QueueError::TooLarge { .. } => Kind::TooLarge,
            QueueError::Limit(limit) => limit.kind(),
            QueueError::DiskFull { .. }
            | QueueError::NoRoom { .. }
            | QueueError::OutboxBusy { .. }
            | QueueError::PartitionFailed { .. }
            | QueueError::PartitionUnusable { .. }
            | QueueError::Stopping => Kind::Unavailable,
            QueueError::Log(error) => error.kind(),
            QueueError::Postgres(error) => error.kind(),
            QueueError::Malformed(_)
            | QueueError::SnapshotDamaged { .. }
            | QueueError::Diverged { .. }
            | QueueError::Io { .. }
            | QueueError::AttachmentDamaged { .. } => Kind::Internal,
        }
    }

    fn retryable(&self) -> bool {
        match self {
            QueueError::Limit(limit) => !PERMANENT_LIMITS.contains(&limit.name),
            _ => matches!(self.kind(), Kind::Unavailable | Kind::LimitReached | Kind::TimedOut),
        }
    }
}

impl From<Refusal> for QueueError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TaskUnknown => QueueError::TaskNotFound { id: "asked for".to_owned() },
            Refusal::QueueUnknown => QueueError::QueueNotFound { name: "asked for".to_owned() },
            Refusal::Draining => QueueError::Draining,
            Refusal::LeaseLost => QueueError::LeaseLost,
            Refusal::WrongState(state) => QueueError::WrongState {
                state: state.as_str(),
                hint: if state.has_ended() {
                    "it has ended; `egret queue requeue` puts dead and cancelled tasks back"
                } else {
                    "wait until it has ended, or cancel it"
                },
            },
            Refusal::ScheduleUnknown => {
                QueueError::ScheduleNotFound { name: "asked for".to_owned() }
            }
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
            DatabasesError::Several { .. } => {
                QueueError::Invalid { what: "database", reason: error.with_names() }
            }
        }
    }
}

impl From<CronScheduleError> for QueueError {
    fn from(error: CronScheduleError) -> Self {
        QueueError::Invalid {
            what: match error {
                CronScheduleError::Cron { .. } => "cron",
                CronScheduleError::TimeZone { .. } => "time_zone",
            },
            reason: error.to_string(),
        }
    }
}

fn no_outbox(database: Option<&str>) -> String {
    match database {
        Some(name) => format!(
            "database `{name}` has no outbox: `egret queue outbox install --database {name}` \
             installs one"
        ),
        None => "no database has an outbox: `egret queue outbox install` installs one".to_owned(),
    }
}

/// Wraps an operating-system error with what was attempted on which path.
pub(crate) fn io_error(
    doing: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(std::io::Error) -> QueueError {
    let path = path.display().to_string();
    move |error| QueueError::Io { doing, path, reason: error.to_string() }
}

#[cfg(test)]
mod tests;
