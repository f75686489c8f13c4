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
const STRETCH_TASKS: usize = 512;

struct StreamProduceSink {
    outlet: ResponseBuffer,
    in_flight: StreamInFlight,
}

impl ProduceSink for StreamProduceSink {
    fn outcomes(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        self.in_flight.give_back(outcomes.len());
        self.outlet.put(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                encode::outcome(page.message(), *number, outcome);
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
    unknown: BTreeSet<String>,
    /// Tasks that its tasks wait for and that must be looked up.
    after: Vec<String>,
}

/// A message that is enqueued in a tokio task of its own: it makes progress even if the stream is
/// not polled because its client reads no responses, so that other streams do not wait for it.
type Detached = AbortOnDropHandle<Result<Intake, QueueError>>;

/// State of the stream's intake of messages.
enum Turn {
    Free(Intake),
    /// The previous message is being enqueued: its queues are made first, or the tasks looked up
    /// that its tasks wait for, or it waits for other messages of its tenant.
    Busy(Detached),
    /// No more, as the stream has ended.
    Over,
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
    turn: Turn,
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
            outlet: ResponseBuffer::default(),
            in_flight: StreamInFlight::new(in_flight.clone(), InFlightKind::Tasks),
        });
        Self {
            reach: rights::reach(&caller, rights::PRODUCE),
            inbound: Some(inbound),
            sink: sink.clone(),
            pause: None,
            stopping: ShutdownSignal::new(stopping),
            turn: Turn::Free(Intake {
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
    fn read(&mut self, context: &mut Context<'_>) {
        let mut stretch = 0;
        while self.sink.outlet.may_ask(UNANSWERED_MAX) {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return;
                }
                self.pause = None;
            }
            if let Turn::Busy(detached) = &mut self.turn {
                let Poll::Ready(done) = Pin::new(detached).poll(context) else {
                    return;
                };
                match done.unwrap_or(Err(QueueError::Stopping)) {
                    Ok(intake) => self.turn = Turn::Free(intake),
                    Err(refusal) => return self.end(crate::problem::grpc_status(&refusal)),
                }
            }
            if stretch >= STRETCH_TASKS {
                stretch = 0;
                self.pause = Some(Box::pin(tokio::task::yield_now()));
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => {
                    stretch += message.tasks.len();
                    self.take(message);
                }
                Poll::Ready(Some(Err(status))) => self.end(malformed_message::told(status)),
                Poll::Ready(None) => self.inbound = None,
            }
        }
    }

    /// Stops reading, and ends the stream with `status` once all earlier tasks have outcomes.
    fn end(&mut self, status: Status) {
        self.inbound = None;
        self.turn = Turn::Over;
        self.sink.outlet.end(status);
    }

    fn take(&mut self, message: v1::ProduceRequest) {
        if let Err(error) = check_batch(message.tasks.len()) {
            return self.end(crate::problem::grpc_status(&error));
        }
        let Turn::Free(mut intake) = std::mem::replace(&mut self.turn, Turn::Over) else {
            return;
        };
        if let Err(status) = intake.check_rights(&self.reach, &message) {
            return self.end(status);
        }
        let first = intake.precondition(&self.reach, &message);
        let permit = if first.unknown.is_empty() && first.after.is_empty() {
            let tasks = message.tasks.len();
            intake.in_flight.try_enter(InFlightKind::Tasks, tasks)
        } else {
            None
        };
        self.turn = match permit {
            Some(permit) => {
                self.sink.in_flight.hold(permit);
                intake.enqueue(&message, &HashMap::new());
                Turn::Free(intake)
            }
            None => {
                let detached = tokio::spawn(intake.enqueue_after(first, message));
                Turn::Busy(AbortOnDropHandle::new(detached))
            }
        };
    }
}

impl Intake {
    /// What must be done before a message can be enqueued.
    fn precondition(&self, reach: &Reach, message: &v1::ProduceRequest) -> Precondition {
        let names = message.tasks.iter().map(|task| &task.queue);
        let names = std::iter::once(&message.queue).chain(names);
        let may_make = self.queues.config().create_on_demand;
        let is_unknown = |name: &&String| !name.is_empty() && self.find(name).is_none();
        let unknown: BTreeSet<String> = if may_make {
            names.filter(is_unknown).cloned().collect()
        } else {
            BTreeSet::new()
        };
        let after: Vec<String> = if *reach == Reach::All {
            Vec::new()
        } else {
            let ids = message.tasks.iter().flat_map(|task| &task.after);
            ids.cloned().collect()
        };
        Precondition { unknown, after }
    }

    /// Does what must be done first, waits for room, and enqueues a message.
    ///
    /// # Errors
    /// Why the whole message is refused.
    async fn enqueue_after(
        mut self,
        first: Precondition,
        message: v1::ProduceRequest,
    ) -> Result<Self, QueueError> {
        let after = first.after.iter().map(String::as_str);
        rights::require_after(&self.queues, &self.caller, after).await?;
        let mut unmade = HashMap::new();
        for name in first.unknown {
            if let Err(error) = self.queues.queue(self.caller.tenant(), &name).await {
                unmade.insert(name, error);
            }
        }
        let tasks = message.tasks.len();
        let permit = self.in_flight.enter(InFlightKind::Tasks, tasks).await;
        self.sink.in_flight.hold(permit);
        self.enqueue(&message, &unmade);
        Ok(self)
    }

    /// Refuses the stream of a producer that names a queue which its token does not cover.
    fn check_rights(&self, reach: &Reach, message: &v1::ProduceRequest) -> Result<(), Status> {
        if *reach == Reach::All {
            return Ok(());
        }
        for task in &message.tasks {
            let queue = if task.queue.is_empty() {
                &message.queue
            } else {
                &task.queue
            };
            let allowed = rights::require(&self.caller, queue, rights::PRODUCE);
            allowed.map_err(|error| crate::problem::grpc_status(&error))?;
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Option<Arc<QueueHandle>> {
        let known = self
            .queue
            .as_ref()
            .filter(|queue| &*queue.name == name && !queue.is_deleted());
        known
            .cloned()
            .or_else(|| self.queues.known_queue(self.caller.tenant(), name))
    }

    fn enqueue(&mut self, message: &v1::ProduceRequest, unmade: &HashMap<String, QueueError>) {
        let mut refused = Vec::new();
        self.sink.outlet.expect(message.tasks.len());
        let first = self.next_number;
        self.next_number += message.tasks.len() as u64;
        let usual = self.find(&message.queue);
        match Enqueues::new(&self.queues) {
            Ok(mut enqueues) => {
                for (number, task) in (first..).zip(&message.tasks) {
                    let added = self.add(&mut enqueues, number, message, usual.as_ref(), task);
                    if let Err(mut error) = added {
                        if let QueueError::QueueNotFound { name } = &error
                            && let Some(cause) = unmade.get(name)
                        {
                            error = cause.clone();
                        }
                        refused.push((number, Err(error)));
                    }
                }
                let sink: Arc<dyn ProduceSink> = self.sink.clone();
                enqueues.submit(&sink);
            }
            Err(error) => {
                let numbers = first..self.next_number;
                refused.extend(numbers.map(|number| (number, Err(error.clone()))));
            }
        }
        if !refused.is_empty() {
            self.sink.outcomes(&refused);
        }
        self.queue = usual;
    }

    fn add(
        &self,
        enqueues: &mut Enqueues<'_>,
        number: u64,
        message: &v1::ProduceRequest,
        usual: Option<&Arc<QueueHandle>>,
        task: &v1::NewTask,
    ) -> Result<(), QueueError> {
        let own = match task.queue.as_str() {
            "" => None,
            name => Some(self.find(name).ok_or(name)),
        };
        let queue = match &own {
            Some(found) => found.as_ref().map_err(|name| *name),
            None => usual.ok_or(message.queue.as_str()),
        };
        let queue = queue.map_err(|name| QueueError::QueueNotFound {
            name: name.to_owned(),
        })?;
        let after = convert::ids(&task.after)?;
        enqueues.add(number, queue, &convert::new_task(task, &after)?)
    }
}

impl Drop for Produce {
    fn drop(&mut self) {
        // Partitions have the sink until everything is answered.
        self.sink.outlet.close();
    }
}

impl Stream for Produce {
    type Item = Result<EncodedMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            self.inbound = None;
        }
        self.read(context);
        let asks_more = self.inbound.is_some() || matches!(self.turn, Turn::Busy(_));
        let next = {
            let farewell = || self.stopping.farewell();
            self.sink.outlet.poll_next(context, asks_more, farewell)
        };
        next.map(|message| message.map(|message| message.map(EncodedMessage)))
    }
}
