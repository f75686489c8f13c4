//! The stream on which tasks are enqueued.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_base::lifecycle::BoxFuture;
use egret_proto::Encoded;
use egret_proto::queue::v1;
use egret_queue::{Enqueued, Enqueues, ProduceSink, QueueError, QueueHandle, Queues, check_batch};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::outlet::{Outlet, Stopping};
use super::{convert, encode};
use crate::grpc::unread;

/// Tasks of one stream that may wait for their outcome; more are not read before.
const UNANSWERED_MAX: usize = 16_384;

struct Sink(Outlet);

impl ProduceSink for Sink {
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]) {
        self.0.put(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                encode::outcome(page.message(), *number, outcome);
            }
        });
    }
}

/// Queues that could not be made, by name.
type Unmade = HashMap<String, QueueError>;

/// A conversation with a producer: reads what it sends while there is room, and sends what there is.
pub(super) struct Produce {
    queues: Queues,
    tenant: Box<str>,
    inbound: Option<Streaming<v1::ProduceRequest>>,
    sink: Arc<Sink>,
    stopping: Stopping,
    next_number: u64,
    /// The queue of the message before.
    queue: Option<Arc<QueueHandle>>,
    /// A message of which queues must be made first.
    held: Option<(v1::ProduceRequest, BoxFuture<'static, Unmade>)>,
}

impl Produce {
    pub fn new(
        queues: Queues,
        tenant: &str,
        inbound: Streaming<v1::ProduceRequest>,
        stopping: CancellationToken,
    ) -> Self {
        Self {
            queues,
            tenant: tenant.into(),
            inbound: Some(inbound),
            sink: Arc::new(Sink(Outlet::default())),
            stopping: Stopping::new(stopping),
            next_number: 0,
            queue: None,
            held: None,
        }
    }

    /// Reads until nothing has come, or enough waits.
    fn read(&mut self, context: &mut Context<'_>) {
        while self.sink.0.may_ask(UNANSWERED_MAX) {
            if let Some((_, making)) = &mut self.held {
                let Poll::Ready(unmade) = making.as_mut().poll(context) else {
                    return;
                };
                let (message, _) = self.held.take().expect("it was just polled");
                self.enqueue(&message, &unmade);
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
                    self.sink.0.end(unread::told(status));
                }
                Poll::Ready(None) => self.inbound = None,
            }
        }
    }

    fn take(&mut self, message: v1::ProduceRequest) {
        if let Err(error) = check_batch(message.tasks.len()) {
            self.inbound = None;
            self.sink.0.end(crate::problem::grpc_status(&error));
            return;
        }
        let names = message.tasks.iter().map(|task| &task.queue);
        let names = std::iter::once(&message.queue).chain(names);
        let mut unknown = names.filter(|name| !name.is_empty() && self.find(name).is_none());
        let Some(first) = unknown
            .next()
            .filter(|_| self.queues.config().create_on_demand)
        else {
            return self.enqueue(&message, &Unmade::default());
        };
        let unknown: BTreeSet<String> = unknown.chain([first]).cloned().collect();
        let (queues, tenant) = (self.queues.clone(), self.tenant.clone());
        let making = Box::pin(async move {
            let mut unmade = Unmade::default();
            for name in unknown {
                if let Err(error) = queues.queue(&tenant, &name).await {
                    unmade.insert(name, error);
                }
            }
            unmade
        });
        self.held = Some((message, making));
    }

    fn find(&self, name: &str) -> Option<Arc<QueueHandle>> {
        let known = self.queue.as_ref();
        let known = known.filter(|queue| &*queue.name == name && !queue.is_deleted());
        known
            .cloned()
            .or_else(|| self.queues.known_queue(&self.tenant, name))
    }

    fn enqueue(&mut self, message: &v1::ProduceRequest, unmade: &Unmade) {
        let mut refused = Vec::new();
        self.sink.0.expect(message.tasks.len());
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
        self.sink.0.close();
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
            self.sink.0.poll_next(context, asks_more, farewell)
        };
        next.map(|message| message.map(|message| message.map(Encoded)))
    }
}
