//! The stream on which tasks are enqueued.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_base::lifecycle::BoxFuture;
use egret_proto::Encoded;
use egret_proto::queue::v1;
use egret_queue::{
    Enqueued, Enqueues, InFlightPermit, ProduceSink, QueueError, QueueHandle, Queues,
    StreamInFlight, TenantInFlight, check_batch,
};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::outlet::{Outlet, Stopping};
use super::{convert, encode};
use crate::access::Caller;
use crate::grpc::unread;
use crate::queue::rights;
use crate::tokens::Reach;

/// Tasks of one stream that may wait for their outcome; more are not read before.
const UNANSWERED_MAX: usize = 16_384;

/// Tasks that are read from a stream at a stretch, before other calls have a chance to go on.
const STRETCH_TASKS: u64 = 512;

struct Sink {
    outlet: Outlet,
    in_flight: StreamInFlight,
}

impl ProduceSink for Sink {
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]) {
        self.in_flight.give_back(outcomes.len());
        self.outlet.put(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                encode::outcome(page.message(), *number, outcome);
            }
        });
    }
}

/// What had to be done before a message could be enqueued.
#[derive(Default)]
struct Prepared {
    /// Queues that could not be made, by name.
    unmade: HashMap<String, QueueError>,
    /// Why the whole message is refused.
    refusal: Option<QueueError>,
    /// Room for its tasks.
    permit: InFlightPermit,
}

/// A conversation with a producer: reads what it sends while there is room, and sends what there is.
pub(super) struct Produce {
    queues: Queues,
    caller: Caller,
    /// The queues in which the caller may enqueue.
    reach: Reach,
    inbound: Option<Streaming<v1::ProduceRequest>>,
    in_flight: Arc<TenantInFlight>,
    sink: Arc<Sink>,
    stopping: Stopping,
    next_number: u64,
    /// The queue of the message before.
    queue: Option<Arc<QueueHandle>>,
    /// Other calls go on first.
    pause: Option<BoxFuture<'static, ()>>,
    /// A message whose queues must be made first, or the tasks looked up that its tasks wait for, or that comes
    /// after others of its tenant.
    held: Option<(v1::ProduceRequest, BoxFuture<'static, Prepared>)>,
}

impl Produce {
    pub fn new(
        queues: Queues,
        caller: Caller,
        inbound: Streaming<v1::ProduceRequest>,
        stopping: CancellationToken,
    ) -> Self {
        let in_flight = queues.in_flight(caller.tenant());
        let sink = Sink {
            outlet: Outlet::default(),
            in_flight: StreamInFlight::new(&in_flight),
        };
        Self {
            queues,
            reach: rights::reach(&caller, rights::PRODUCE),
            caller,
            inbound: Some(inbound),
            in_flight,
            sink: Arc::new(sink),
            pause: None,
            stopping: Stopping::new(stopping),
            next_number: 0,
            queue: None,
            held: None,
        }
    }

    /// Reads until nothing has come, or enough waits, or others are to go on.
    fn read(&mut self, context: &mut Context<'_>) {
        let begin = self.next_number;
        while self.sink.outlet.may_ask(UNANSWERED_MAX) {
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return;
                }
                self.pause = None;
            }
            if let Some((_, making)) = &mut self.held {
                let Poll::Ready(prepared) = making.as_mut().poll(context) else {
                    return;
                };
                let (message, _) = self.held.take().expect("it was just polled");
                if let Some(refusal) = &prepared.refusal {
                    self.inbound = None;
                    self.sink.outlet.end(crate::problem::grpc_status(refusal));
                    return;
                }
                self.sink.in_flight.hold(prepared.permit);
                self.enqueue(&message, &prepared.unmade);
                continue;
            }
            if self.next_number - begin >= STRETCH_TASKS {
                self.pause = Some(Box::pin(tokio::task::yield_now()));
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => self.take(message),
                Poll::Ready(Some(Err(status))) => {
                    self.inbound = None;
                    self.sink.outlet.end(unread::told(status));
                }
                Poll::Ready(None) => self.inbound = None,
            }
        }
    }

    fn take(&mut self, message: v1::ProduceRequest) {
        if let Err(error) = check_batch(message.tasks.len()) {
            self.inbound = None;
            self.sink.outlet.end(crate::problem::grpc_status(&error));
            return;
        }
        if let Err(status) = self.check_rights(&message) {
            self.inbound = None;
            return self.sink.outlet.end(status);
        }
        let names = message.tasks.iter().map(|task| &task.queue);
        let names = std::iter::once(&message.queue).chain(names);
        let may_make = self.queues.config().create_on_demand;
        let is_unknown = |name: &&String| !name.is_empty() && self.find(name).is_none();
        let unknown: BTreeSet<String> = if may_make {
            names.filter(is_unknown).cloned().collect()
        } else {
            BTreeSet::new()
        };
        let after: Vec<String> = if self.reach == Reach::All {
            Vec::new()
        } else {
            let ids = message.tasks.iter().flat_map(|task| &task.after);
            ids.cloned().collect()
        };
        if unknown.is_empty() && after.is_empty() && !self.in_flight.is_bounded() {
            return self.enqueue(&message, &HashMap::new());
        }
        let (in_flight, tasks) = (self.in_flight.clone(), message.tasks.len());
        let (queues, caller) = (self.queues.clone(), self.caller.clone());
        let preparing = Box::pin(async move {
            let mut prepared = Prepared::default();
            let after = after.iter().map(String::as_str);
            prepared.refusal = rights::require_after(&queues, &caller, after).await.err();
            for name in unknown {
                if let Err(error) = queues.queue(caller.tenant(), &name).await {
                    prepared.unmade.insert(name, error);
                }
            }
            prepared.permit = in_flight.enter(tasks).await;
            prepared
        });
        self.held = Some((message, preparing));
    }

    /// Refuses the stream of a producer that names a queue which its token does not cover.
    fn check_rights(&self, message: &v1::ProduceRequest) -> Result<(), Status> {
        if self.reach == Reach::All {
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
        let known = self.queue.as_ref();
        let known = known.filter(|queue| &*queue.name == name && !queue.is_deleted());
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
    type Item = Result<Encoded, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) {
            self.inbound = None;
        }
        self.read(context);
        let asks_more = self.inbound.is_some() || self.held.is_some();
        let next = {
            let farewell = || self.stopping.farewell();
            self.sink.outlet.poll_next(context, asks_more, farewell)
        };
        next.map(|message| message.map(|message| message.map(Encoded)))
    }
}
