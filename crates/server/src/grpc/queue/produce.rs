//! The stream on which tasks are enqueued.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_base::lifecycle::BoxFuture;
use egret_proto::EncodedMessage;
use egret_proto::queue::v1;
use egret_queue::{
    EnqueueReceipt, Enqueues, InFlightKind, ProduceSink, QueueError, QueueHandle, Queues,
    StreamInFlight, TenantInFlight, check_batch,
};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

use super::response_buffer::{ResponseBuffer, ShutdownSignal};
use super::{convert, encode};
use crate::access::Caller;
use crate::grpc::malformed_message;
use crate::queue::rights;
use crate::tokens::Reach;

/// Tasks of one stream that may wait for their outcome; more are not read before.
const UNANSWERED_MAX: usize = 16_384;

/// Tasks that are read from a stream before it yields to other calls.
const YIELD_TASKS: usize = 512;

struct StreamProduceSink {
    buffer: ResponseBuffer,
    in_flight: StreamInFlight,
}

impl ProduceSink for StreamProduceSink {
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        self.in_flight.release(outcomes.len());
        self.buffer.append(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                encode::put_outcome(page.message(), *number, outcome);
            }
        });
    }
}

/// Enqueues the messages of a stream, one after the other.
struct Intake {
    queues: Queues,
    caller: Caller,
    in_flight: Arc<TenantInFlight>,
    sink: Arc<StreamProduceSink>,
    next_number: u64,
    /// The queue of the message before.
    queue: Option<Arc<QueueHandle>>,
}

/// What must be done before a message can be enqueued.
struct Precondition {
    /// Queues that must be made first.
    unknown_queues: BTreeSet<String>,
    /// Tasks that its tasks wait for and that must be looked up.
    awaited_tasks: Vec<String>,
}

/// A message that is enqueued in a tokio task of its own: it makes progress even if the stream is
/// not polled because its client reads no responses, so that other streams do not wait for it.
type Detached = AbortOnDropHandle<Result<Intake, QueueError>>;

/// State of the stream's intake of messages.
enum IntakeState {
    Idle(Intake),
    /// The previous message is being enqueued: its queues are made first, or the tasks looked up
    /// that its tasks wait for, or it waits for other messages of its tenant.
    Enqueueing(Detached),
    /// No more, as the stream has ended.
    Ended,
}

/// A producer's stream: reads messages while there is room, and sends outcomes.
pub(super) struct Produce {
    /// The queues in which the caller may enqueue.
    reach: Reach,
    inbound: Option<Streaming<v1::ProduceRequest>>,
    sink: Arc<StreamProduceSink>,
    stopping: ShutdownSignal,
    /// Lets other calls run before more is read.
    pause: Option<BoxFuture<'static, ()>>,
    state: IntakeState,
}

impl Produce {
    pub(crate) fn new(
        queues: Queues,
        caller: Caller,
        inbound: Streaming<v1::ProduceRequest>,
        stopping: CancellationToken,
    ) -> Self {
        let in_flight = queues.in_flight(caller.tenant());
        let sink = Arc::new(StreamProduceSink {
            buffer: ResponseBuffer::default(),
            in_flight: StreamInFlight::new(in_flight.clone(), InFlightKind::Tasks),
        });
        Self {
            reach: rights::reach(&caller, rights::PRODUCE),
            inbound: Some(inbound),
            sink: sink.clone(),
            pause: None,
            stopping: ShutdownSignal::new(stopping),
            state: IntakeState::Idle(Intake {
                queues,
                caller,
                in_flight,
                sink,
                next_number: 0,
                queue: None,
            }),
        }
    }

    /// Reads messages until none is available, too many tasks are unanswered, or it must yield.
    fn read_inbound(&mut self, context: &mut Context<'_>) {
        let mut tasks_read = 0;
        while self.sink.buffer.may_receive(UNANSWERED_MAX) {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return;
                }
                self.pause = None;
            }
            if let IntakeState::Enqueueing(detached) = &mut self.state {
                let Poll::Ready(result) = Pin::new(detached).poll(context) else {
                    return;
                };
                match result.unwrap_or(Err(QueueError::Stopping)) {
                    Ok(intake) => self.state = IntakeState::Idle(intake),
                    Err(refusal) => return self.end_inbound(crate::problem::grpc_status(&refusal)),
                }
            }
            if tasks_read >= YIELD_TASKS {
                tasks_read = 0;
                self.pause = Some(Box::pin(tokio::task::yield_now()));
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => {
                    tasks_read += message.tasks.len();
                    self.handle_message(message);
                }
                Poll::Ready(Some(Err(status))) => {
                    self.end_inbound(malformed_message::assign_code(status))
                }
                Poll::Ready(None) => self.inbound = None,
            }
        }
    }

    /// Stops reading, and ends the stream with `status` once all earlier tasks have outcomes.
    fn end_inbound(&mut self, status: Status) {
        self.inbound = None;
        self.state = IntakeState::Ended;
        self.sink.buffer.end(status);
    }

    fn handle_message(&mut self, message: v1::ProduceRequest) {
        if let Err(error) = check_batch(message.tasks.len()) {
            return self.end_inbound(crate::problem::grpc_status(&error));
        }
        let IntakeState::Idle(mut intake) = std::mem::replace(&mut self.state, IntakeState::Ended)
        else {
            return;
        };
        if let Err(status) = intake.check_rights(&self.reach, &message) {
            return self.end_inbound(status);
        }
        let precondition = intake.find_precondition(&self.reach, &message);
        let permit =
            if precondition.unknown_queues.is_empty() && precondition.awaited_tasks.is_empty() {
                let tasks = message.tasks.len();
                intake.in_flight.try_acquire(InFlightKind::Tasks, tasks)
            } else {
                None
            };
        self.state = match permit {
            Some(permit) => {
                self.sink.in_flight.hold(permit);
                intake.enqueue(&message, &HashMap::new());
                IntakeState::Idle(intake)
            }
            None => {
                let detached = tokio::spawn(intake.enqueue_after(precondition, message));
                IntakeState::Enqueueing(AbortOnDropHandle::new(detached))
            }
        };
    }
}

impl Intake {
    /// What must be done before a message can be enqueued.
    fn find_precondition(&self, reach: &Reach, message: &v1::ProduceRequest) -> Precondition {
        let names = message.tasks.iter().map(|task| &task.queue);
        let names = std::iter::once(&message.queue).chain(names);
        let creates_queues = self.queues.config().create_on_demand;
        let is_unknown = |name: &&String| !name.is_empty() && self.find_queue(name).is_none();
        let unknown_queues: BTreeSet<String> = if creates_queues {
            names.filter(is_unknown).cloned().collect()
        } else {
            BTreeSet::new()
        };
        let awaited_tasks: Vec<String> = if *reach == Reach::All {
            Vec::new()
        } else {
            let ids = message.tasks.iter().flat_map(|task| &task.after);
            ids.cloned().collect()
        };
        Precondition { unknown_queues, awaited_tasks }
    }

    /// Does what must be done first, waits for room, and enqueues a message.
    ///
    /// # Errors
    /// Why the whole message is refused.
    async fn enqueue_after(
        mut self,
        precondition: Precondition,
        message: v1::ProduceRequest,
    ) -> Result<Self, QueueError> {
        let after = precondition.awaited_tasks.iter().map(String::as_str);
        rights::require_dependencies(&self.queues, &self.caller, after).await?;
        let mut failed_queues = HashMap::new();
        for name in precondition.unknown_queues {
            if let Err(error) = self.queues.get_or_create_queue(self.caller.tenant(), &name).await {
                failed_queues.insert(name, error);
            }
        }
        let tasks = message.tasks.len();
        let permit = self.in_flight.acquire(InFlightKind::Tasks, tasks).await;
        self.sink.in_flight.hold(permit);
        self.enqueue(&message, &failed_queues);
        Ok(self)
    }

    /// Refuses the stream of a producer that names a queue which its token does not cover.
    fn check_rights(&self, reach: &Reach, message: &v1::ProduceRequest) -> Result<(), Status> {
        if *reach == Reach::All {
            return Ok(());
        }
        for task in &message.tasks {
            let queue = if task.queue.is_empty() { &message.queue } else { &task.queue };
            let result = rights::require(&self.caller, queue, rights::PRODUCE);
            result.map_err(|error| crate::problem::grpc_status(&error))?;
        }
        Ok(())
    }

    fn find_queue(&self, name: &str) -> Option<Arc<QueueHandle>> {
        let cached =
            self.queue.as_ref().filter(|queue| &*queue.name == name && !queue.is_deleted());
        cached.cloned().or_else(|| self.queues.find_queue(self.caller.tenant(), name))
    }

    fn enqueue(
        &mut self,
        message: &v1::ProduceRequest,
        failed_queues: &HashMap<String, QueueError>,
    ) {
        let mut refusals = Vec::new();
        self.sink.buffer.add_unanswered(message.tasks.len());
        let first_number = self.next_number;
        self.next_number += message.tasks.len() as u64;
        let default_queue = self.find_queue(&message.queue);
        match Enqueues::new(&self.queues) {
            Ok(mut enqueues) => {
                for (number, task) in (first_number..).zip(&message.tasks) {
                    let result =
                        self.add_task(&mut enqueues, number, message, default_queue.as_ref(), task);
                    if let Err(mut error) = result {
                        if let QueueError::QueueNotFound { name } = &error
                            && let Some(cause) = failed_queues.get(name)
                        {
                            error = cause.clone();
                        }
                        refusals.push((number, Err(error)));
                    }
                }
                let sink: Arc<dyn ProduceSink> = self.sink.clone();
                enqueues.submit(&sink);
            }
            Err(error) => {
                let numbers = first_number..self.next_number;
                refusals.extend(numbers.map(|number| (number, Err(error.clone()))));
            }
        }
        if !refusals.is_empty() {
            self.sink.deliver_receipts(&refusals);
        }
        self.queue = default_queue;
    }

    fn add_task(
        &self,
        enqueues: &mut Enqueues<'_>,
        number: u64,
        message: &v1::ProduceRequest,
        default_queue: Option<&Arc<QueueHandle>>,
        task: &v1::NewTask,
    ) -> Result<(), QueueError> {
        let own_queue = match task.queue.as_str() {
            "" => None,
            name => Some(self.find_queue(name).ok_or(name)),
        };
        let queue = match &own_queue {
            Some(found) => found.as_ref().map_err(|name| *name),
            None => default_queue.ok_or(message.queue.as_str()),
        };
        let queue = queue.map_err(|name| QueueError::QueueNotFound { name: name.to_owned() })?;
        let after = convert::parse_ids(&task.after)?;
        enqueues.add(number, queue, &convert::new_task(task, &after)?)
    }
}

impl Drop for Produce {
    fn drop(&mut self) {
        // Partitions have the sink until everything is answered.
        self.sink.buffer.close();
    }
}

impl Stream for Produce {
    type Item = Result<EncodedMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            self.inbound = None;
        }
        self.read_inbound(context);
        let has_more_requests =
            self.inbound.is_some() || matches!(self.state, IntakeState::Enqueueing(_));
        let next = {
            let final_status = || self.stopping.shutdown_status();
            self.sink.buffer.poll_next(context, has_more_requests, final_status)
        };
        next.map(|message| message.map(|message| message.map(EncodedMessage)))
    }
}
