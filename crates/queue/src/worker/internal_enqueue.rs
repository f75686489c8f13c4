//! Enqueueing from within Egret: tasks of other engines, and rows of outboxes.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_base::id::Uuid;
use egret_base::lifecycle::BoxFuture;
use egret_base::{CodedError, TaskReceipt, TaskRejection, TaskRequest, TaskSink};
use egret_log::DurabilityMode;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::error::QueueError;
use crate::model::TaskId;
use crate::store::content::Format;
use crate::worker::enqueues::Enqueues;
use crate::worker::name::check_name;
use crate::worker::new_task::{BATCH_MAX, NewTask};
use crate::worker::queues::Queues;
use crate::worker::sinks::{EnqueueReceipt, ProduceSink};
use crate::worker::submission::Submission;

/// How long an origin is remembered, in milliseconds: seven days.
pub(crate) const ORIGIN_WINDOW_MS: u64 = 7 * 86_400_000;

/// A task for a queue by name, with its external key.
pub(crate) struct EnqueueRequest<'a> {
    pub tenant: &'a str,
    pub queue: &'a str,
    pub task: NewTask<'a>,
    /// External key, and for how long it is remembered, in milliseconds.
    pub origin: Option<(&'a str, u64)>,
}

type Outcome = Result<EnqueueReceipt, QueueError>;

/// Sends every outcome to a channel, which is as long as its batch.
struct Gather(UnboundedSender<(u64, Outcome)>);

impl ProduceSink for Gather {
    fn deliver_receipts(&self, outcomes: &[(u64, Outcome)]) {
        for outcome in outcomes {
            // The caller may have gone away.
            let _ = self.0.send(outcome.clone());
        }
    }
}

impl Queues {
    /// Enqueues tasks; the result has one outcome for each, in their order.
    pub(crate) async fn enqueue_many(&self, requests: &[EnqueueRequest<'_>]) -> Vec<Outcome> {
        let (sender, mut receiver) = unbounded_channel();
        let mut outcomes: Vec<Outcome> = vec![Err(QueueError::Stopping); requests.len()];
        // The queues are looked up before the first task is added.
        let mut queues = Vec::with_capacity(requests.len());
        for request in requests {
            queues.push(self.get_or_create_queue(request.tenant, request.queue).await);
        }
        let sink: Arc<dyn ProduceSink> = Arc::new(Gather(sender));
        let Ok(mut enqueues) = Enqueues::new(self) else {
            return outcomes;
        };
        for ((number, order), queue) in (0..).zip(requests).zip(queues) {
            let added = queue.and_then(|queue| match order.origin {
                Some((origin, window_ms)) => {
                    enqueues.add_with_origin(number, &queue, &order.task, origin, window_ms)
                }
                None => enqueues.add(number, &queue, &order.task),
            });
            if let Err(error) = added {
                outcomes[number as usize] = Err(error);
            }
        }
        enqueues.submit(&sink);
        // A partition that cannot go on drops the sink without an outcome.
        drop(sink);
        while let Some((number, outcome)) = receiver.recv().await {
            outcomes[number as usize] = outcome;
        }
        outcomes
    }
}

impl Queues {
    /// Waits until these committed tasks survive a loss of power, whatever `queue.durability` is:
    /// for callers that then delete their own copy. Only the partitions of the tasks are synced.
    ///
    /// # Errors
    /// Why a partition cannot guarantee it.
    pub(crate) async fn make_durable(&self, tasks: &[TaskId]) -> Result<(), QueueError> {
        if self.inner.config.durability == DurabilityMode::Fsync {
            return Ok(());
        }
        let partitions: BTreeSet<usize> = tasks
            .iter()
            .map(|task| self.inner.partition_of(task.shard()))
            .collect::<Result<_, _>>()?;
        let mut receivers = Vec::new();
        for partition in partitions {
            let (sender, receiver) = oneshot::channel();
            let on_synced = Box::new(move |outcome| {
                // The caller may have gone away.
                let _ = sender.send(outcome);
            });
            self.inner.submit(partition, Submission::Sync(on_synced))?;
            receivers.push(receiver);
        }
        for told in receivers {
            told.await.unwrap_or(Err(QueueError::Stopping))?;
        }
        Ok(())
    }
}

impl TaskSink for Queues {
    fn check_queue(&self, queue: &str) -> Result<(), TaskRejection> {
        check_name(queue).map_err(|error| to_rejection(&error))
    }

    fn enqueue<'a>(
        &'a self,
        tasks: &'a [TaskRequest<'a>],
    ) -> BoxFuture<'a, Vec<Result<TaskReceipt, TaskRejection>>> {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(tasks.len());
            for batch in tasks.chunks(BATCH_MAX) {
                let requests: Vec<EnqueueRequest<'_>> = batch.iter().map(enqueue_request).collect();
                let results = self.enqueue_many(&requests).await;
                outcomes.extend(results.into_iter().map(to_receipt));
            }
            outcomes
        })
    }
}

fn enqueue_request<'a>(request: &TaskRequest<'a>) -> EnqueueRequest<'a> {
    EnqueueRequest {
        tenant: request.tenant,
        queue: request.queue,
        task: NewTask {
            payload: request.payload,
            format: Format::Json,
            ordering_key: request.ordering_key,
            unique_key: request.unique_key,
            ..NewTask::default()
        },
        origin: (!request.key.is_empty()).then_some((request.key, ORIGIN_WINDOW_MS)),
    }
}

fn to_receipt(outcome: Outcome) -> Result<TaskReceipt, TaskRejection> {
    match outcome {
        Ok(enqueued) => Ok(TaskReceipt {
            id: Uuid::from_bytes(enqueued.id.to_bytes()),
            replayed: enqueued.replayed,
        }),
        Err(error) => Err(to_rejection(&error)),
    }
}

fn to_rejection(error: &QueueError) -> TaskRejection {
    TaskRejection {
        code: error.code(),
        kind: error.kind(),
        retryable: error.retryable(),
        message: egret_base::error::chain(error),
    }
}
