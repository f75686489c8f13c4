//! The unary calls: the engine's call behind each, and its response.

use egret_proto::queue::v1;
use egret_queue::{Detail, QueueError, Queues, WorkSpec, check_batch};

use super::convert;
use crate::access::Caller;
use crate::problem::Problem;
use crate::queue::{self, Atomicity, Produced, ReportItem, TaskInput};

/// Enqueues tasks: each by itself, chains as a whole.
pub(super) async fn enqueue(
    queues: &Queues,
    caller: &Caller,
    name: &str,
    tasks: &[v1::NewTask],
    atomic: bool,
) -> Result<Vec<Produced>, Problem> {
    let inputs = tasks.iter().map(|task| {
        Ok(TaskInput {
            queue: match task.queue.as_str() {
                "" => name,
                own => own,
            },
            after: task.after.iter().map(String::as_str).collect(),
            task: convert::new_task(task, &[])?,
        })
    });
    queue::enqueue(queues, caller, inputs.collect(), Atomicity::from_flag(atomic)).await
}

/// Reports on leased tasks, each answered by itself.
pub(super) async fn report(
    queues: &Queues,
    caller: &Caller,
    reports: &[v1::TaskReport],
) -> Result<Vec<Result<(), QueueError>>, QueueError> {
    check_batch(reports.len())?;
    let mut manifests = Vec::with_capacity(reports.len());
    for one in reports {
        let names = convert::attachments(one);
        manifests.push(queue::find_manifest(queues, caller.tenant(), &one.lease, names).await);
    }
    let items = reports.iter().zip(&manifests).map(|(one, manifest)| {
        let (kind, text, format) = convert::parse_report(one, 0)?;
        Ok(ReportItem {
            lease: &one.lease,
            kind,
            text,
            format,
            manifest: manifest.as_ref().map_err(Clone::clone)?.as_ref(),
        })
    });
    queue::report_tasks(queues, caller, items).await
}

/// Leases tasks without a stream.
pub(super) async fn claim(
    queues: &Queues,
    tenant: &str,
    request: v1::ClaimRequest,
) -> Result<Vec<egret_queue::OwnedTask>, QueueError> {
    let tasks_max = queue::claim_max(request.max)?;
    let timeout = queue::wait_duration(request.wait_ms)?;
    let spec = WorkSpec {
        queues: request.queues,
        worker: request.worker,
        lease_ms: (request.lease_ms > 0).then_some(request.lease_ms),
    };
    queues.claim(tenant, &spec, tasks_max, timeout).await
}

pub(super) async fn list_tasks(
    queues: &Queues,
    tenant: &str,
    request: &v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, QueueError> {
    let limit = queue::page_limit(request.limit)?;
    let state = convert::parse_state(request.state)?;
    let page =
        queues.tasks(tenant, &request.queue, state, &request.tag, limit, &request.cursor).await?;
    Ok(v1::ListTasksResponse {
        tasks: page.tasks.iter().map(convert::task).collect(),
        next_cursor: page.next.unwrap_or_default(),
        unavailable_partitions: convert::partition_numbers(&page.unavailable),
    })
}

pub(super) async fn get_task(
    queues: &Queues,
    tenant: &str,
    text: &str,
    detail: Detail,
) -> Result<v1::Task, QueueError> {
    let view = queues.task(tenant, queue::parse_task_id(text)?, detail).await?;
    Ok(convert::task(&view))
}
