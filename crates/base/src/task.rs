//! Tasks for a queue: how one engine has work done later without knowing the engine that keeps the
//! queue.
//!
//! The wiring hands a [`TaskSink`] to those that make tasks.

use std::fmt;

use crate::error::{CodedError, Kind};
use crate::id::Uuid;
use crate::lifecycle::BoxFuture;

/// A task to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRequest<'a> {
    /// Tenant that the queue belongs to.
    pub tenant: &'a str,
    /// Name of the queue.
    pub queue: &'a str,
    /// Payload of the task, as JSON.
    pub payload: &'a [u8],
    /// Identifies what the task is made from, among everything that makes tasks, such as
    /// `views/orders/42`: if the key is used again within seven days, the task of the first time is
    /// returned. Empty: each call makes a task.
    pub key: &'a str,
    /// Tasks with the same ordering key are worked on one after the other; empty: none.
    pub ordering_key: &'a str,
    /// Tasks with the same unique key are one task, for as long as the queue says; empty: none.
    pub unique_key: &'a str,
}

/// A task that the queue has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskReceipt {
    /// Id of the task.
    pub id: Uuid,
    /// Whether the task existed already.
    pub replayed: bool,
}

/// Why a task was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRejection {
    /// The stable name of the error.
    pub code: &'static str,
    /// The family that the error belongs to.
    pub kind: Kind,
    /// Whether a later retry can help.
    pub retryable: bool,
    /// What was wrong and what to do.
    pub message: String,
}

impl fmt::Display for TaskRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TaskRejection {}

impl CodedError for TaskRejection {
    fn code(&self) -> &'static str {
        self.code
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn retryable(&self) -> bool {
        self.retryable
    }
}

/// Accepts tasks and stores them.
pub trait TaskSink: Send + Sync {
    /// Rejects a text that cannot be the name of a queue, so that a part configured with such a
    /// name reports it at its start.
    ///
    /// # Errors
    /// [`TaskRejection`], which describes valid names.
    fn check_queue(&self, queue: &str) -> Result<(), TaskRejection>;

    /// Enqueues tasks. Completes when the accepted ones are as durable as the configuration
    /// promises, with one outcome for each task, in their order.
    fn enqueue<'a>(
        &'a self,
        tasks: &'a [TaskRequest<'a>],
    ) -> BoxFuture<'a, Vec<Result<TaskReceipt, TaskRejection>>>;
}
