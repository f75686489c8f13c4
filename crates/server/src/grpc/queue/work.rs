//! The stream on which tasks are worked on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_base::lifecycle::BoxFuture;
use egret_proto::Encoded;
use egret_proto::queue::v1;
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{
    Assigned, InFlightKind, QueueError, Queues, ReportSink, Reports, StreamInFlight,
    TenantInFlight, WorkSink, WorkSpec, Worker, check_batch,
};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

use super::outlet::{Outlet, Stopping};
use super::{convert, encode};
use crate::access::Caller;
use crate::grpc::unread;
use crate::problem::grpc_status;
use crate::queue::{self, invalid, rights};

/// Reports of one stream that may wait for their outcome; more are not read before.
const UNANSWERED_MAX: usize = 16_384;

struct Sink {
    outlet: Outlet,
    in_flight: StreamInFlight,
}

impl ReportSink for Sink {
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.in_flight.give_back(outcomes.len());
        self.outlet.put(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                match outcome {
                    Ok(()) => page.accept(*number),
                    Err(error) => encode::refused(page.message(), *number, error),
                }
            }
        });
    }
}

impl WorkSink for Sink {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = Assigned<'_>>) {
        self.outlet.put(0, |page| {
            for task in tasks {
                encode::assignment(page.message(), &task);
            }
        });
    }

    fn lost(&self, id: TaskId, lease: Lease, end: AttemptEnd) {
        self.outlet
            .put(0, |page| encode::lost(page.message(), id, lease, end));
    }

    fn ended(&self, error: QueueError) {
        self.outlet.end(grpc_status(&error));
    }

    fn is_full(&self) -> bool {
        self.outlet.is_full()
    }
}

type Taken = Result<(Worker, u64), QueueError>;

/// A conversation with a worker.
pub(super) struct Work {
    queues: Queues,
    /// What its tenant has in flight.
    in_flight: Arc<TenantInFlight>,
    caller: Caller,
    inbound: Option<Streaming<v1::WorkRequest>>,
    sink: Arc<Sink>,
    stopping: Stopping,
    next_number: u64,
    place: Place,
    held: Option<Held>,
}

/// A message whose reports wait behind others of their tenant, in a task of its own: it goes on although nobody
/// polls the stream, as when its client takes no answers, so that nothing waits behind it.
struct Held {
    submitting: AbortOnDropHandle<()>,
    /// What the message says beside its reports.
    rest: Rest,
}

/// What a message says beside its reports, and that comes after them.
struct Rest {
    drain: bool,
    credits: u32,
}

/// How far the conversation is.
enum Place {
    /// No hello yet.
    Silent,
    /// The worker is being taken in; with what came beside the hello.
    Coming(BoxFuture<'static, Taken>, u64, v1::WorkRequest),
    /// It works; a heartbeat without a time is for so many milliseconds, zero: as its queue says.
    There(Worker, u64),
}

impl Work {
    pub fn new(
        queues: Queues,
        caller: Caller,
        inbound: Streaming<v1::WorkRequest>,
        stopping: CancellationToken,
    ) -> Self {
        let in_flight = queues.in_flight(caller.tenant());
        let sink = Sink {
            outlet: Outlet::default(),
            in_flight: StreamInFlight::new(in_flight.clone(), InFlightKind::Reports),
        };
        Self {
            queues,
            in_flight,
            caller,
            inbound: Some(inbound),
            sink: Arc::new(sink),
            stopping: Stopping::new(stopping),
            next_number: 0,
            place: Place::Silent,
            held: None,
        }
    }

    fn read(&mut self, context: &mut Context<'_>) {
        while self.sink.outlet.may_ask(UNANSWERED_MAX) {
            if let Place::Coming(taking, ..) = &mut self.place {
                match taking.as_mut().poll(context) {
                    Poll::Pending => return,
                    Poll::Ready(taken) => self.begin(taken),
                }
                continue;
            }
            if let Some(held) = &mut self.held {
                if Pin::new(&mut held.submitting).poll(context).is_pending() {
                    return;
                }
                let held = self.held.take().expect("it was just polled");
                self.go_on(&held.rest);
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => self.take(message),
                Poll::Ready(Some(Err(status))) => self.break_off(unread::told(status)),
                Poll::Ready(None) => {
                    self.inbound = None;
                    self.leave();
                }
            }
        }
    }

    /// The client has closed its side: the end comes after what was handed out before.
    fn leave(&mut self) {
        if let Place::There(worker, _) = &self.place {
            self.sink.outlet.expect(1);
            let sink = self.sink.clone();
            worker.drain(move || sink.outlet.put(1, |_| {}));
        }
    }

    fn break_off(&mut self, status: Status) {
        self.inbound = None;
        self.place = Place::Silent;
        self.sink.outlet.end(status);
    }

    fn take(&mut self, mut message: v1::WorkRequest) {
        match (&self.place, message.hello.take()) {
            (Place::Silent, Some(hello)) => {
                let mut queues = hello.queues.iter();
                let allowed =
                    queues.try_for_each(|queue| rights::require(&self.caller, queue, rights::WORK));
                if let Err(error) = allowed {
                    return self.break_off(grpc_status(&error));
                }
                let spec = WorkSpec {
                    queues: hello.queues,
                    worker: hello.worker,
                    lease_ms: (hello.lease_ms > 0).then_some(hello.lease_ms),
                };
                let (queues, caller) = (self.queues.clone(), self.caller.clone());
                let sink = self.sink.clone();
                let taking =
                    Box::pin(async move { queues.worker(caller.tenant(), &spec, sink).await });
                self.place = Place::Coming(taking, hello.lease_ms, message);
            }
            (Place::There(..), None) => self.work(message),
            (Place::Silent, None) => self.refuse("the first message of a stream must carry it"),
            (_, Some(_)) => self.refuse("only the first message of a stream may carry it"),
            (Place::Coming(..), None) => unreachable!("nothing is read meanwhile"),
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.break_off(grpc_status(&invalid("hello", reason)));
    }

    fn begin(&mut self, taken: Taken) {
        let before = std::mem::replace(&mut self.place, Place::Silent);
        let Place::Coming(_, asked_ms, message) = before else {
            unreachable!("it was being taken in");
        };
        match taken {
            Ok((worker, lease_ms)) => {
                self.sink
                    .outlet
                    .put(0, |page| encode::welcome(page.message(), lease_ms));
                self.place = Place::There(worker, asked_ms);
                self.work(message);
            }
            Err(error) => self.break_off(grpc_status(&error)),
        }
    }

    fn work(&mut self, message: v1::WorkRequest) {
        let Place::There(_, lease_ms) = &self.place else {
            return;
        };
        if let Err(error) = check_batch(message.reports.len()) {
            return self.break_off(grpc_status(&error));
        }
        let rest = Rest {
            drain: message.drain,
            credits: message.credits,
        };
        let count = message.reports.len();
        if count == 0 {
            return self.go_on(&rest);
        }
        self.sink.outlet.expect(count);
        let reported = ReportMessage {
            queues: self.queues.clone(),
            caller: self.caller.clone(),
            sink: self.sink.clone(),
            lease_ms: *lease_ms,
            first: self.next_number,
            reports: message.reports,
        };
        self.next_number += count as u64;
        if let Some(permit) = self.in_flight.try_enter(InFlightKind::Reports, count) {
            self.sink.in_flight.hold(permit);
            reported.submit();
            return self.go_on(&rest);
        }
        let in_flight = self.in_flight.clone();
        let submitting = tokio::spawn(async move {
            let permit = in_flight.enter(InFlightKind::Reports, count).await;
            reported.sink.in_flight.hold(permit);
            reported.submit();
        });
        self.held = Some(Held {
            submitting: AbortOnDropHandle::new(submitting),
            rest,
        });
    }

    /// Does what a message says beside its reports, unless the worker leaves.
    fn go_on(&mut self, rest: &Rest) {
        let Place::There(worker, _) = &self.place else {
            return;
        };
        if self.inbound.is_none() {
            return;
        }
        if rest.drain {
            let sink = self.sink.clone();
            worker.drain(move || sink.outlet.put(0, |page| encode::drained(page.message())));
        }
        if let Err(error) = worker.add_credits(rest.credits) {
            self.break_off(grpc_status(&error));
        }
    }
}

/// The reports of one message.
struct ReportMessage {
    queues: Queues,
    caller: Caller,
    sink: Arc<Sink>,
    /// A heartbeat without a time is for so many milliseconds; zero: as its queue says.
    lease_ms: u64,
    /// The number of the first one.
    first: u64,
    reports: Vec<v1::TaskReport>,
}

impl ReportMessage {
    /// Hands them to the partitions.
    fn submit(&self) {
        let reports = Reports::new(&self.queues, self.caller.tenant());
        let reports = reports.map(|reports| reports.within(rights::work_filter(&self.caller)));
        report(
            reports,
            &self.sink,
            self.lease_ms,
            self.first,
            &self.reports,
        );
        for (number, one) in (self.first..).zip(&self.reports) {
            if !convert::attachments(one).is_empty() {
                let (queues, caller) = (self.queues.clone(), self.caller.clone());
                let sink = self.sink.clone();
                let done = complete_attached(queues, caller, sink, number, one.clone());
                tokio::spawn(done);
            }
        }
    }
}

/// A completion that names attachments: their files are looked at beside the stream, which has its
/// outcome to give.
async fn complete_attached(
    queues: Queues,
    caller: Caller,
    sink: Arc<Sink>,
    number: u64,
    asked: v1::TaskReport,
) {
    let names = convert::attachments(&asked);
    let added = async {
        let manifest = queue::manifest(&queues, caller.tenant(), &asked.lease, names).await?;
        let manifest = manifest.expect("it names attachments");
        let (_, result, format) = convert::report(&asked, 0)?;
        let reports = Reports::new(&queues, caller.tenant())?;
        let mut reports = reports.within(rights::work_filter(&caller));
        reports.add_attached(number, &asked.lease, result, format, &manifest)?;
        Ok(reports)
    };
    match added.await {
        Ok(reports) => {
            let sink: Arc<dyn ReportSink> = sink;
            reports.submit(&sink);
        }
        Err(error) => sink.reported(&[(number, Err(error))]),
    }
}

fn report(
    reports: Result<Reports<'_>, QueueError>,
    sink: &Arc<Sink>,
    lease_ms: u64,
    first: u64,
    asked: &[v1::TaskReport],
) {
    let mut refused = Vec::new();
    match reports {
        Ok(mut reports) => {
            let plain = (first..)
                .zip(asked)
                .filter(|(_, one)| convert::attachments(one).is_empty());
            for (number, one) in plain {
                let added = convert::report(one, lease_ms).and_then(|(said, text, format)| {
                    reports.add(number, &one.lease, said, text, format)
                });
                if let Err(error) = added {
                    refused.push((number, Err(error)));
                }
            }
            let sink: Arc<dyn ReportSink> = sink.clone();
            reports.submit(&sink);
        }
        Err(error) => {
            let plain = (first..)
                .zip(asked)
                .filter(|(_, one)| convert::attachments(one).is_empty());
            refused.extend(plain.map(|(number, _)| (number, Err(error.clone()))));
        }
    }
    if !refused.is_empty() {
        sink.reported(&refused);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Partitions know the sink for as long as its leases last.
        self.sink.outlet.close();
    }
}

impl Stream for Work {
    type Item = Result<Encoded, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) && self.inbound.take().is_some() {
            self.leave();
        }
        self.read(context);
        let asks_more = self.inbound.is_some() || matches!(self.place, Place::Coming(..));
        let next = {
            let farewell = || self.stopping.farewell();
            self.sink.outlet.poll_next(context, asks_more, farewell)
        };
        if let Place::There(worker, _) = &self.place
            && self.sink.outlet.is_relieved()
        {
            worker.resume();
        }
        next.map(|message| message.map(|message| message.map(Encoded)))
    }
}
