//! Calls of the queue engine that HTTP and gRPC share.

mod changes;
mod enqueue;
mod outcome_collector;
mod parameters;
mod report;
pub(crate) mod rights;

pub(crate) use changes::Changes;
pub(crate) use enqueue::{Atomicity, Produced, TaskInput, enqueue};
pub(crate) use parameters::{
    TASKS_MAX, WAIT_MS_MAX, claim_max, invalid, page_limit, parse_task_id, wait_duration,
};
pub(crate) use report::{ReportItem, find_manifest, report_tasks, truncate_at_char};
