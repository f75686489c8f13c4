//! Tasks for whoever has a queue: how one engine has work done later without knowing which engine
//! keeps it.
//!
//! The wiring hands a [`TaskSink`] to those that make tasks.

use std::fmt;

use crate::error::{Coded, Kind};
use crate::id::Uuid;
use crate::lifecycle::BoxFuture;

/// A task to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRequest<'a> {
    /// Whose queue it goes to.
    pub tenant: &'a str,
    /// The queue's name.
    pub queue: &'a str,
    /// What is to be worked on: JSON.
    pub payload: &'a [u8],
    /// What the task is made from, told apart from everything else that makes tasks, such as
    /// `views/orders/42`: handed over again under the same key within seven days, it is the task of the
    /// first time. Empty: each time is a task.
    pub key: &'a str,
    /// Tasks with the same ordering key are worked on one after the other; empty: none.
    pub ordering_key: &'a str,
    /// What makes tasks of different keys the same, for as long as the queue says; empty: nothing.
    pub unique_key: &'a str,
}

/// A task that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskReceipt {
    /// Its id.
    pub id: Uuid,
    /// It was there already.
    pub replayed: bool,
}

/// Why a task was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRefused {
    /// The stable name of the error.
    pub code: &'static str,
    /// Its family.
    pub kind: Kind,
    /// Whether handing it over again later can help.
    pub retryable: bool,
    /// What was wrong and what to do.
    pub message: String,
}

impl fmt::Display for TaskRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TaskRefused {}

impl Coded for TaskRefused {
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

/// Takes tasks in and keeps them.
pub trait TaskSink: Send + Sync {
    /// Refuses what cannot be the name of a queue, so that who was configured with one says so at the start.
    ///
    /// # Errors
    /// [`TaskRefused`] with what names look like.
    fn check_queue(&self, queue: &str) -> Result<(), TaskRefused>;

    /// Hands tasks over. The answer comes when those that were taken are kept as durably as the
    /// configuration promises, and has one outcome for each task, in their order.
    fn enqueue<'a>(
        &'a self,
        tasks: &'a [TaskRequest<'a>],
    ) -> BoxFuture<'a, Vec<Result<TaskReceipt, TaskRefused>>>;
}
