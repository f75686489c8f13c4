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
    buffer: ResponseBuffer,
    in_flight: StreamInFlight,
}

impl ReportSink for StreamReportSink {
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.in_flight.release(outcomes.len());
        self.buffer.append(outcomes.len(), |page| {
            for (number, outcome) in outcomes {
                match outcome {
                    Ok(()) => page.add_accepted(*number),
                    Err(error) => encode::put_refused(page.message(), *number, error),
                }
            }
        });
    }
}

impl WorkSink for StreamReportSink {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        self.buffer.append(0, |page| {
            for task in tasks {
                encode::put_assignment(page.message(), &task);
            }
        });
    }

    fn notify_lost_lease(&self, id: TaskId, lease: Lease, end: AttemptEnd) {
        self.buffer.append(0, |page| encode::put_lost_lease(page.message(), id, lease, end));
    }

    fn notify_end(&self, error: QueueError) {
        self.buffer.end(grpc_status(&error));
    }

    fn is_full(&self) -> bool {
        self.buffer.is_full()
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
    state: StreamState,
    queued_message: Option<QueuedMessage>,
}

/// A message whose reports wait behind others of their tenant, in a tokio task of its own: it makes
/// progress even if the stream is not polled because its client reads no responses, so that other
/// streams do not wait for it.
struct QueuedMessage {
    submission: AbortOnDropHandle<()>,
    /// The other fields of the message.
    control: WorkControl,
}

/// The fields of a message that are applied after its reports.
struct WorkControl {
    drain: bool,
    credits: u32,
}

/// State of the stream.
enum StreamState {
    AwaitingHello,
    /// The worker is being registered. With the lease time of its hello, and the message that
    /// carried it.
    Registering(BoxFuture<'static, WorkerRegistration>, u64, v1::WorkRequest),
    /// The worker is registered. With the lease time of a heartbeat that names none, in
    /// milliseconds; zero: as its queue says.
    Registered(Worker, u64),
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
            buffer: ResponseBuffer::default(),
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
            state: StreamState::AwaitingHello,
            queued_message: None,
        }
    }

    fn read_inbound(&mut self, context: &mut Context<'_>) {
        while self.sink.buffer.may_receive(UNANSWERED_MAX) {
            if let StreamState::Registering(registration, ..) = &mut self.state {
                match registration.as_mut().poll(context) {
                    Poll::Pending => return,
                    Poll::Ready(result) => self.finish_registration(result),
                }
                continue;
            }
            if let Some(queued) = &mut self.queued_message {
                if Pin::new(&mut queued.submission).poll(context).is_pending() {
                    return;
                }
                let held = self.queued_message.take().expect("the submission was just polled");
                self.apply_control(&held.control);
                continue;
            }
            let Some(inbound) = &mut self.inbound else {
                return;
            };
            match Pin::new(inbound).poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(message))) => self.handle_message(message),
                Poll::Ready(Some(Err(status))) => {
                    self.end_with_error(malformed_message::assign_code(status))
                }
                Poll::Ready(None) => {
                    self.inbound = None;
                    self.drain_worker();
                }
            }
        }
    }

    /// The client has closed its side: the end comes after what was handed out before.
    fn drain_worker(&mut self) {
        if let StreamState::Registered(worker, _) = &self.state {
            self.sink.buffer.add_unanswered(1);
            let sink = self.sink.clone();
            worker.drain(move || sink.buffer.append(1, |_| {}));
        }
    }

    fn end_with_error(&mut self, status: Status) {
        self.inbound = None;
        self.state = StreamState::AwaitingHello;
        self.sink.buffer.end(status);
    }

    fn handle_message(&mut self, mut message: v1::WorkRequest) {
        match (&self.state, message.hello.take()) {
            (StreamState::AwaitingHello, Some(hello)) => {
                let mut queues = hello.queues.iter();
                let result =
                    queues.try_for_each(|queue| rights::require(&self.caller, queue, rights::WORK));
                if let Err(error) = result {
                    return self.end_with_error(grpc_status(&error));
                }
                let spec = WorkSpec {
                    queues: hello.queues,
                    worker: hello.worker,
                    lease_ms: (hello.lease_ms > 0).then_some(hello.lease_ms),
                };
                let (queues, caller) = (self.queues.clone(), self.caller.clone());
                let sink = self.sink.clone();
                let taking =
                    Box::pin(
                        async move { queues.register_worker(caller.tenant(), &spec, sink).await },
                    );
                self.state = StreamState::Registering(taking, hello.lease_ms, message);
            }
            (StreamState::Registered(..), None) => self.submit_reports(message),
            (StreamState::AwaitingHello, None) => {
                self.refuse_hello("the first message of a stream must carry it")
            }
            (_, Some(_)) => self.refuse_hello("only the first message of a stream may carry it"),
            (StreamState::Registering(..), None) => {
                unreachable!("no message is read while a registration is pending")
            }
        }
    }

    fn refuse_hello(&mut self, reason: &str) {
        self.end_with_error(grpc_status(&invalid("hello", reason)));
    }

    fn finish_registration(&mut self, result: WorkerRegistration) {
        let previous = std::mem::replace(&mut self.state, StreamState::AwaitingHello);
        let StreamState::Registering(_, hello_lease_ms, message) = previous else {
            unreachable!("a registration was pending");
        };
        match result {
            Ok((worker, lease_ms)) => {
                self.sink.buffer.append(0, |page| encode::put_welcome(page.message(), lease_ms));
                self.state = StreamState::Registered(worker, hello_lease_ms);
                self.submit_reports(message);
            }
            Err(error) => self.end_with_error(grpc_status(&error)),
        }
    }

    fn submit_reports(&mut self, message: v1::WorkRequest) {
        let StreamState::Registered(_, lease_ms) = &self.state else {
            return;
        };
        if let Err(error) = check_batch(message.reports.len()) {
            return self.end_with_error(grpc_status(&error));
        }
        let control = WorkControl { drain: message.drain, credits: message.credits };
        let count = message.reports.len();
        if count == 0 {
            return self.apply_control(&control);
        }
        self.sink.buffer.add_unanswered(count);
        let report_message = ReportMessage {
            queues: self.queues.clone(),
            caller: self.caller.clone(),
            sink: self.sink.clone(),
            lease_ms: *lease_ms,
            first_number: self.next_number,
            reports: message.reports,
        };
        self.next_number += count as u64;
        if let Some(permit) = self.in_flight.try_acquire(InFlightKind::Reports, count) {
            self.sink.in_flight.hold(permit);
            report_message.submit();
            return self.apply_control(&control);
        }
        let in_flight = self.in_flight.clone();
        let submission = tokio::spawn(async move {
            let permit = in_flight.acquire(InFlightKind::Reports, count).await;
            report_message.sink.in_flight.hold(permit);
            report_message.submit();
        });
        self.queued_message =
            Some(QueuedMessage { submission: AbortOnDropHandle::new(submission), control });
    }

    /// Applies drain and credits of a message, unless the worker has left.
    fn apply_control(&mut self, control: &WorkControl) {
        let StreamState::Registered(worker, _) = &self.state else {
            return;
        };
        if self.inbound.is_none() {
            return;
        }
        if control.drain {
            let sink = self.sink.clone();
            worker.drain(move || sink.buffer.append(0, |page| encode::put_drained(page.message())));
        }
        if let Err(error) = worker.add_credits(control.credits) {
            self.end_with_error(grpc_status(&error));
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
    first_number: u64,
    reports: Vec<v1::TaskReport>,
}

impl ReportMessage {
    /// Hands them to the partitions.
    fn submit(&self) {
        let reports = Reports::new(&self.queues, self.caller.tenant());
        let reports = reports.map(|reports| reports.with_filter(rights::work_filter(&self.caller)));
        submit_plain_reports(reports, &self.sink, self.lease_ms, self.first_number, &self.reports);
        for (number, one) in (self.first_number..).zip(&self.reports) {
            if !convert::attachments(one).is_empty() {
                let (queues, caller) = (self.queues.clone(), self.caller.clone());
                let sink = self.sink.clone();
                let completion = complete_attached(queues, caller, sink, number, one.clone());
                tokio::spawn(completion);
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
    report: v1::TaskReport,
) {
    let names = convert::attachments(&report);
    let preparation = async {
        let manifest = queue::find_manifest(&queues, caller.tenant(), &report.lease, names)
            .await?
            .expect("the completion names attachments");
        let (_, result, format) = convert::parse_report(&report, 0)?;
        let reports = Reports::new(&queues, caller.tenant())?;
        let mut reports = reports.with_filter(rights::work_filter(&caller));
        reports.add_attached(number, &report.lease, result, format, &manifest)?;
        Ok(reports)
    };
    match preparation.await {
        Ok(reports) => {
            let sink: Arc<dyn ReportSink> = sink;
            reports.submit(&sink);
        }
        Err(error) => sink.deliver_outcomes(&[(number, Err(error))]),
    }
}

fn submit_plain_reports(
    reports: Result<Reports<'_>, QueueError>,
    sink: &Arc<StreamReportSink>,
    lease_ms: u64,
    first_number: u64,
    task_reports: &[v1::TaskReport],
) {
    let mut refusals = Vec::new();
    match reports {
        Ok(mut reports) => {
            let plain = (first_number..)
                .zip(task_reports)
                .filter(|(_, one)| convert::attachments(one).is_empty());
            for (number, one) in plain {
                let result =
                    convert::parse_report(one, lease_ms).and_then(|(kind, text, format)| {
                        reports.add(number, &one.lease, kind, text, format)
                    });
                if let Err(error) = result {
                    refusals.push((number, Err(error)));
                }
            }
            let sink: Arc<dyn ReportSink> = sink.clone();
            reports.submit(&sink);
        }
        Err(error) => {
            let plain = (first_number..)
                .zip(task_reports)
                .filter(|(_, one)| convert::attachments(one).is_empty());
            refusals.extend(plain.map(|(number, _)| (number, Err(error.clone()))));
        }
    }
    if !refusals.is_empty() {
        sink.deliver_outcomes(&refusals);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Partitions know the sink for as long as its leases last.
        self.sink.buffer.close();
    }
}

impl Stream for Work {
    type Item = Result<EncodedMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stopping.poll(context) && self.inbound.take().is_some() {
            self.drain_worker();
        }
        self.read_inbound(context);
        let has_more_requests =
            self.inbound.is_some() || matches!(self.state, StreamState::Registering(..));
        let next = {
            let final_status = || self.stopping.shutdown_status();
            self.sink.buffer.poll_next(context, has_more_requests, final_status)
        };
        if let StreamState::Registered(worker, _) = &self.state
            && self.sink.buffer.reset_if_drained()
        {
            worker.resume();
        }
        next.map(|message| message.map(|message| message.map(EncodedMessage)))
    }
}
