//! The stream on which tasks are worked on.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_base::lifecycle::BoxFuture;
use egret_proto::EncodedMessage;
use egret_proto::queue::v1;
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{
    InFlightKind, QueueError, Queues, ReportSink, Reports, StreamInFlight, TaskAssignment,
    TenantInFlight, WorkSink, WorkSpec, Worker, check_batch,
};
use futures_util::Stream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Status, Streaming};

use super::response_buffer::{ResponseBuffer, ShutdownSignal};
use super::{convert, encode};
use crate::access::Caller;
use crate::grpc::malformed_message;
use crate::problem::grpc_status;
use crate::queue::{self, invalid, rights};

/// Reports of one stream that may wait for their outcome; more are not read before.
const UNANSWERED_MAX: usize = 16_384;

struct StreamReportSink {
    outlet: ResponseBuffer,
    in_flight: StreamInFlight,
}

impl ReportSink for StreamReportSink {
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

impl WorkSink for StreamReportSink {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
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

type WorkerRegistration = Result<(Worker, u64), QueueError>;

/// A worker's stream, read and written in turn.
pub(super) struct Work {
    queues: Queues,
    /// The items that its tenant has in flight.
    in_flight: Arc<TenantInFlight>,
    caller: Caller,
    inbound: Option<Streaming<v1::WorkRequest>>,
    sink: Arc<StreamReportSink>,
    stopping: ShutdownSignal,
    next_number: u64,
    place: StreamState,
    held: Option<QueuedMessage>,
}

/// A message whose reports wait behind others of their tenant, in a tokio task of its own: it makes
/// progress even if the stream is not polled because its client reads no responses, so that other
/// streams do not wait for it.
struct QueuedMessage {
    submitting: AbortOnDropHandle<()>,
    /// The other fields of the message.
    rest: WorkControl,
}

/// The fields of a message that are applied after its reports.
struct WorkControl {
    drain: bool,
    credits: u32,
}

/// State of the stream.
enum StreamState {
    Silent,
    /// The worker is being registered. With the lease time of its hello, and the message that
    /// carried it.
    Coming(BoxFuture<'static, WorkerRegistration>, u64, v1::WorkRequest),
    /// The worker is registered. With the lease time of a heartbeat that names none, in
    /// milliseconds; zero: as its queue says.
    There(Worker, u64),
}

impl Work {
    pub(crate) fn new(
        queues: Queues,
        caller: Caller,
        inbound: Streaming<v1::WorkRequest>,
        stopping: CancellationToken,
    ) -> Self {
        let in_flight = queues.in_flight(caller.tenant());
        let sink = StreamReportSink {
            outlet: ResponseBuffer::default(),
            in_flight: StreamInFlight::new(in_flight.clone(), InFlightKind::Reports),
        };
        Self {
            queues,
            in_flight,
            caller,
            inbound: Some(inbound),
            sink: Arc::new(sink),
            stopping: ShutdownSignal::new(stopping),
            next_number: 0,
            place: StreamState::Silent,
            held: None,
        }
    }

    fn read(&mut self, context: &mut Context<'_>) {
        while self.sink.outlet.may_ask(UNANSWERED_MAX) {
            if let StreamState::Coming(taking, ..) = &mut self.place {
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
                let held = self.held.take().expect("the submission was just polled");
                self.go_on(&held.rest);
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => self.take(message),
                Poll::Ready(Some(Err(status))) => self.break_off(malformed_message::told(status)),
                Poll::Ready(None) => {
                    self.inbound = None;
                    self.leave();
                }
            }
        }
    }

    /// The client has closed its side: the end comes after what was handed out before.
    fn leave(&mut self) {
        if let StreamState::There(worker, _) = &self.place {
            self.sink.outlet.expect(1);
            let sink = self.sink.clone();
            worker.drain(move || sink.outlet.put(1, |_| {}));
        }
    }

    fn break_off(&mut self, status: Status) {
        self.inbound = None;
        self.place = StreamState::Silent;
        self.sink.outlet.end(status);
    }

    fn take(&mut self, mut message: v1::WorkRequest) {
        match (&self.place, message.hello.take()) {
            (StreamState::Silent, Some(hello)) => {
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
                self.place = StreamState::Coming(taking, hello.lease_ms, message);
            }
            (StreamState::There(..), None) => self.work(message),
            (StreamState::Silent, None) => {
                self.refuse("the first message of a stream must carry it")
            }
            (_, Some(_)) => self.refuse("only the first message of a stream may carry it"),
            (StreamState::Coming(..), None) => {
                unreachable!("no message is read while a registration is pending")
            }
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.break_off(grpc_status(&invalid("hello", reason)));
    }

    fn begin(&mut self, taken: WorkerRegistration) {
        let before = std::mem::replace(&mut self.place, StreamState::Silent);
        let StreamState::Coming(_, asked_ms, message) = before else {
            unreachable!("a registration was pending");
        };
        match taken {
            Ok((worker, lease_ms)) => {
                self.sink
                    .outlet
                    .put(0, |page| encode::welcome(page.message(), lease_ms));
                self.place = StreamState::There(worker, asked_ms);
                self.work(message);
            }
            Err(error) => self.break_off(grpc_status(&error)),
        }
    }

    fn work(&mut self, message: v1::WorkRequest) {
        let StreamState::There(_, lease_ms) = &self.place else {
            return;
        };
        if let Err(error) = check_batch(message.reports.len()) {
            return self.break_off(grpc_status(&error));
        }
        let rest = WorkControl {
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
        self.held = Some(QueuedMessage {
            submitting: AbortOnDropHandle::new(submitting),
            rest,
        });
    }

    /// Applies drain and credits of a message, unless the worker has left.
    fn go_on(&mut self, rest: &WorkControl) {
        let StreamState::There(worker, _) = &self.place else {
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
    sink: Arc<StreamReportSink>,
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
    sink: Arc<StreamReportSink>,
    number: u64,
    asked: v1::TaskReport,
) {
    let names = convert::attachments(&asked);
    let added = async {
        let manifest = queue::manifest(&queues, caller.tenant(), &asked.lease, names)
            .await?
            .expect("the completion names attachments");
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
    sink: &Arc<StreamReportSink>,
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
    type Item = Result<EncodedMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) && self.inbound.take().is_some() {
            self.leave();
        }
        self.read(context);
        let asks_more = self.inbound.is_some() || matches!(self.place, StreamState::Coming(..));
        let next = {
            let farewell = || self.stopping.farewell();
            self.sink.outlet.poll_next(context, asks_more, farewell)
        };
        if let StreamState::There(worker, _) = &self.place
            && self.sink.outlet.is_relieved()
        {
            worker.resume();
        }
        next.map(|message| message.map(|message| message.map(EncodedMessage)))
    }
}
