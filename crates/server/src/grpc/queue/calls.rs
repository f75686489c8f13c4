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
    let wanted = tasks.iter().map(|task| {
        Ok(TaskInput {
            queue: match task.queue.as_str() {
                "" => name,
                own => own,
            },
            after: task.after.iter().map(String::as_str).collect(),
            task: convert::new_task(task, &[])?,
        })
    });
    queue::enqueue(queues, caller, wanted.collect(), Atomicity::of(atomic)).await
}

/// Reports on leased tasks, each answered by itself.
pub(super) async fn report(
    queues: &Queues,
    caller: &Caller,
    asked: &[v1::TaskReport],
) -> Result<Vec<Result<(), QueueError>>, QueueError> {
    check_batch(asked.len())?;
    let mut manifests = Vec::with_capacity(asked.len());
    for one in asked {
        let names = convert::attachments(one);
        manifests.push(queue::manifest(queues, caller.tenant(), &one.lease, names).await);
    }
    let words = asked.iter().zip(&manifests).map(|(one, manifest)| {
        let (said, text, format) = convert::report(one, 0)?;
        Ok(ReportItem {
            lease: &one.lease,
            said,
            text,
            format,
            manifest: manifest.as_ref().map_err(Clone::clone)?.as_ref(),
        })
    });
    queue::report(queues, caller, words).await
}

/// Leases tasks without a stream.
pub(super) async fn claim(
    queues: &Queues,
    tenant: &str,
    asked: v1::ClaimRequest,
) -> Result<Vec<egret_queue::OwnedTask>, QueueError> {
    let most = queue::claim_max(asked.max)?;
    let patience = queue::patience(asked.wait_ms)?;
    let spec = WorkSpec {
        queues: asked.queues,
        worker: asked.worker,
        lease_ms: (asked.lease_ms > 0).then_some(asked.lease_ms),
    };
    queues.claim(tenant, &spec, most, patience).await
}

pub(super) async fn list(
    queues: &Queues,
    tenant: &str,
    asked: &v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, QueueError> {
    let limit = queue::page_limit(asked.limit)?;
    let state = convert::state(asked.state)?;
    let page = queues
        .tasks(
            tenant,
            &asked.queue,
            state,
            &asked.tag,
            limit,
            &asked.cursor,
        )
        .await?;
    Ok(v1::ListTasksResponse {
        tasks: page.tasks.iter().map(convert::task).collect(),
        next_cursor: page.next.unwrap_or_default(),
        unavailable_partitions: convert::partitions(&page.unavailable),
    })
}

pub(super) async fn task(
    queues: &Queues,
    tenant: &str,
    text: &str,
    detail: Detail,
) -> Result<v1::Task, QueueError> {
    let view = queues.task(tenant, queue::id(text)?, detail).await?;
    Ok(convert::task(&view))
}
