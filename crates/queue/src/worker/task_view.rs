//! A task as operators see it, assembled from the partition's index and the log.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::core::command::{Command, Enqueue};
use crate::core::entry::{Entry, TaskState};
use crate::core::slab::SlotIndex;
use crate::core::state::{PastAttempt, State};
use crate::error::QueueError;
use crate::model::{AttemptEnd, TaskId};
use crate::store::attachment::{Attachment, take_manifest};
use crate::store::content::{self, Content, Format};
use crate::store::record;

/// How much of a task is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// All fields of the task.
    Whole,
    /// Without payload and result.
    Brief,
}

/// An attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// Number of the attempt, from 1.
    pub number: u16,
    /// Name of the worker that held the task.
    pub worker: String,
    /// Start of the attempt, in Unix milliseconds.
    pub started_ms: u64,
    /// Unix milliseconds; zero while it runs.
    pub ended_ms: u64,
    /// How it ended; empty while it runs.
    pub outcome: &'static str,
    /// Error or reason that the worker reported.
    pub error: String,
}

/// A task as operators see it. Times are Unix milliseconds, zero where they do not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Id of the task.
    pub id: TaskId,
    /// Name of the task's queue.
    pub queue: String,
    /// State of the task.
    pub state: TaskState,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Ordering key; empty for a task without one.
    pub ordering_key: String,
    /// When it becomes ready.
    pub run_at_ms: u64,
    /// When its lease ends.
    pub lease_until_ms: u64,
    /// When it ended, in Unix milliseconds.
    pub ended_ms: u64,
    /// Attempts that have begun so far.
    pub attempts: u16,
    /// Attempts before it is dead.
    pub max_attempts: u16,
    /// The latest attempts, oldest first.
    pub history: Vec<AttemptView>,
    /// Payload of the task.
    pub payload: Vec<u8>,
    /// Format of the payload.
    pub format: Format,
    /// Result of the task.
    pub result: Vec<u8>,
    /// Format of the result.
    pub result_format: Format,
    /// Attachments of the result.
    pub attachments: Vec<Attachment>,
    /// The token of the lease that completed it.
    pub(crate) completed_by: u64,
    /// Error of the last attempt that failed, unless the task is completed; for a task that was
    /// cancelled because of another one, which one.
    pub error: String,
    /// For people to find it by.
    pub tags: Vec<String>,
    /// Metadata, as names and values.
    pub metadata: BTreeMap<String, String>,
    /// W3C trace context: `traceparent`.
    pub traceparent: String,
    /// W3C trace context: `tracestate`.
    pub tracestate: String,
    /// URL that is called when the task has ended.
    pub callback_url: String,
    /// The tasks that it still waits for.
    pub after: Vec<TaskId>,
    /// Unique key; empty for a task without one.
    pub unique_key: String,
}

impl TaskView {
    /// Bytes of its texts: keys, tags, metadata, errors.
    pub(crate) fn text_bytes(&self) -> usize {
        let history = self.history.iter().map(|attempt| attempt.error.len() + attempt.worker.len());
        let metadata = self.metadata.iter().map(|(name, value)| name.len() + value.len());
        let texts = [
            &self.ordering_key,
            &self.error,
            &self.traceparent,
            &self.tracestate,
            &self.callback_url,
            &self.unique_key,
        ];
        history.sum::<usize>()
            + metadata.sum::<usize>()
            + self.tags.iter().map(String::len).sum::<usize>()
            + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

/// Data of a task in its partition, read in its turn.
pub(crate) struct TaskSnapshot {
    id: TaskId,
    pub entry: Entry,
    queue: String,
    tags: Vec<u8>,
    worker: String,
    max_attempts: u16,
    past_attempts: Vec<(PastAttempt, String)>,
    after: Vec<TaskId>,
}

impl TaskSnapshot {
    pub(crate) fn from_state(state: &State, slot: SlotIndex) -> Option<Self> {
        let entry = *state.entry(slot);
        Some(Self {
            id: state.id_at(slot),
            queue: state.queue_by_id(entry.queue)?.name.to_string(),
            tags: state.tags(entry.tags).to_vec(),
            worker: state.worker_name(entry.worker).to_owned(),
            max_attempts: state.max_attempts(slot),
            past_attempts: state
                .past_attempts(slot)
                .map(|attempt| (*attempt, state.worker_name(attempt.worker).to_owned()))
                .collect(),
            after: state.dependencies_of(entry.number).to_vec(),
            entry,
        })
    }
}

/// The task in a record.
pub(crate) fn task_in_record(record: &[u8]) -> Result<Option<Enqueue<'_>>, QueueError> {
    Ok(match record::decode(record)? {
        Command::Enqueue(task) => Some(task),
        Command::PutSchedule(schedule) => Some(schedule.task),
        _ => None,
    })
}

/// The attachments and the result in the record of a completion.
fn completion(record: &[u8]) -> Result<(Vec<Attachment>, &[u8]), QueueError> {
    Ok(match record::decode(record)? {
        Command::CompleteAttached(report) => take_manifest(report.content)?,
        Command::Complete(held) => (Vec::new(), held.content),
        _ => (Vec::new(), &[]),
    })
}

/// Why a task was cancelled that depended on another one.
fn dependency_error(record: &[u8]) -> Result<Option<String>, QueueError> {
    Ok(match record::decode(record)? {
        Command::Resolve { task, .. } => Some(format!(
            "task {task}, which this task depends on, was not completed: it is dead, cancelled, \
             deleted or unknown"
        )),
        _ => None,
    })
}

/// The error or reason in the record of a report.
fn report_text(record: &[u8]) -> Result<&[u8], QueueError> {
    Ok(match record::decode(record)? {
        Command::Fail { report: held, .. }
        | Command::Defer { report: held, .. }
        | Command::Heartbeat { report: held, .. } => held.content,
        _ => &[],
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a record; `None` when it was deleted.
pub(crate) type RecordReader<'a> = &'a dyn Fn(u64) -> Result<Option<Bytes>, QueueError>;

/// Assembles a view; `None` when the records of the task were deleted.
pub(crate) fn build_view(
    snapshot: TaskSnapshot,
    detail: Detail,
    read: RecordReader<'_>,
) -> Result<Option<TaskView>, QueueError> {
    let Some(record) = read(snapshot.entry.record)? else {
        return Ok(None);
    };
    let task = task_in_record(&record)?.unwrap_or_default();
    let task_content = content::decode(task.content)?;
    let history = snapshot.history(read)?;
    let entry = &snapshot.entry;
    let reason = match entry.state {
        TaskState::Cancelled if entry.token != 0 => read(entry.token)?,
        _ => None,
    };
    let reason = reason.map_or(Ok(None), |record| dependency_error(&record))?;
    let result = match (entry.state, detail) {
        (TaskState::Completed, Detail::Whole) => read(entry.token)?,
        _ => None,
    };
    let nothing = (Vec::new(), &[][..]);
    let (attachments, result) = result.as_deref().map_or(Ok(nothing), completion)?;
    let time_if = |applies: bool| if applies { entry.at_ms } else { 0 };
    let view = TaskView {
        id: snapshot.id,
        queue: snapshot.queue,
        state: entry.state,
        priority: entry.priority,
        run_at_ms: time_if(entry.state == TaskState::Delayed),
        lease_until_ms: time_if(entry.state == TaskState::Leased),
        ended_ms: time_if(entry.state.has_ended()),
        attempts: entry.attempts,
        max_attempts: snapshot.max_attempts,
        error: match entry.state {
            TaskState::Completed => String::new(),
            _ => reason.unwrap_or_else(|| last_error(&history)),
        },
        history,
        result_format: match result.first() {
            Some(1) => Format::Json,
            _ => Format::Bytes,
        },
        result: result.get(1..).unwrap_or_default().to_vec(),
        attachments,
        completed_by: entry.ending_token(),
        tags: content::tags(&snapshot.tags).map(str::to_owned).collect(),
        after: snapshot.after,
        ..content_view(snapshot.id, &task_content)
    };
    Ok(Some(match detail {
        Detail::Whole => view,
        Detail::Brief => TaskView { payload: Vec::new(), ..view },
    }))
}

/// The error of an attempt that ended without a report.
fn default_error(end: AttemptEnd) -> &'static str {
    match end {
        AttemptEnd::LeaseExpired => "the lease expired: no heartbeat came in time",
        AttemptEnd::TimedOut => "the attempt took longer than the task's timeout",
        _ => "",
    }
}

fn last_error(history: &[AttemptView]) -> String {
    let mut latest = history.iter().rev();
    let failed = latest.find(|attempt| !attempt.error.is_empty());
    failed.map(|attempt| attempt.error.clone()).unwrap_or_default()
}

/// A view with the content of a task only.
fn content_view(id: TaskId, task_content: &Content<'_>) -> TaskView {
    let to_owned_pair = |(name, value): (&&str, &&str)| ((*name).to_owned(), (*value).to_owned());
    TaskView {
        id,
        queue: String::new(),
        state: TaskState::Waiting,
        priority: 0,
        ordering_key: task_content.ordering_key.to_owned(),
        run_at_ms: 0,
        lease_until_ms: 0,
        ended_ms: 0,
        attempts: 0,
        max_attempts: 0,
        history: Vec::new(),
        payload: task_content.payload.to_vec(),
        format: task_content.format,
        result: Vec::new(),
        result_format: Format::Bytes,
        attachments: Vec::new(),
        completed_by: 0,
        error: String::new(),
        tags: Vec::new(),
        metadata: task_content.metadata.iter().map(to_owned_pair).collect(),
        traceparent: task_content.traceparent.to_owned(),
        tracestate: task_content.tracestate.to_owned(),
        callback_url: task_content.private.callback_url.to_owned(),
        after: Vec::new(),
        unique_key: task_content.private.unique_key.to_owned(),
    }
}

impl TaskSnapshot {
    fn history(&self, read: RecordReader<'_>) -> Result<Vec<AttemptView>, QueueError> {
        let mut history = Vec::with_capacity(self.past_attempts.len() + 1);
        for (past_attempt, worker) in self.past_attempts.iter().rev() {
            let said = match past_attempt.record {
                0 => None,
                record => read(record)?,
            };
            history.push(AttemptView {
                number: past_attempt.attempt,
                worker: worker.clone(),
                started_ms: past_attempt.started_ms,
                ended_ms: past_attempt.ended_ms,
                outcome: past_attempt.end.as_str(),
                error: match said.as_deref().map_or(Ok(&[][..]), report_text)? {
                    [] => default_error(past_attempt.end).to_owned(),
                    said => text(said),
                },
            });
        }
        let entry = &self.entry;
        if matches!(entry.state, TaskState::Leased | TaskState::Completed) {
            let is_completed = entry.state == TaskState::Completed;
            history.push(AttemptView {
                number: entry.attempts,
                worker: self.worker.clone(),
                started_ms: entry.started_ms.get(),
                ended_ms: if is_completed { entry.at_ms } else { 0 },
                outcome: if is_completed { "completed" } else { "" },
                error: String::new(),
            });
        }
        Ok(history)
    }
}
