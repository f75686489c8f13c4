//! Egret's queue over its two streams, `Produce` and `Work`.

use std::task::{Context, Poll};

use anyhow::Result;
use bytes::BytesMut;

use super::broker::{Broker, Events};
use super::link::GrpcLink;
use super::wire::{self, Fields, Value};

/// Tasks, or reports, that one message may hold.
const BATCH_MAX: usize = 1_000;

/// How long a lease of the worker lasts, in milliseconds: longer than any pause of a measurement.
pub(super) const LEASE_MS: u64 = 300_000;

/// Result of each completed task.
const RESULT: &[u8] = b"ok";

/// A producer's stream and a worker's.
pub(super) struct Egret {
    producer: GrpcLink,
    worker: GrpcLink,
    tasks: MessageBuilder,
    reports: MessageBuilder,
    credits: u32,
    /// What each message to the producer's stream begins with: the queue.
    message_prefix: BytesMut,
}

/// A message in the making.
#[derive(Default)]
struct MessageBuilder {
    bytes: BytesMut,
    item_count: usize,
}

impl Egret {
    /// Opens both streams to a queue that is there.
    ///
    /// # Errors
    /// If no connection to `host` can be established.
    pub(super) async fn open(host: &str, token: &str, queue: &str) -> Result<Self> {
        let path = |call: &str| format!("/egret.queue.v1.Queue/{call}");
        let producer = GrpcLink::open(host, &path("Produce"), token).await?;
        let mut worker = GrpcLink::open(host, &path("Work"), token).await?;
        let mut hello = BytesMut::new();
        wire::put_hello(&mut hello, queue, "egret-bench", LEASE_MS);
        worker.push_message(&hello);
        let mut message_prefix = BytesMut::new();
        wire::put_bytes_field(&mut message_prefix, 1, queue.as_bytes());
        Ok(Self {
            producer,
            worker,
            tasks: MessageBuilder::default(),
            reports: MessageBuilder::default(),
            credits: 0,
            message_prefix,
        })
    }

    fn send_tasks(&mut self) {
        if self.tasks.item_count > 0 {
            self.producer.push_message(&self.tasks.bytes);
            self.tasks.clear();
        }
    }

    fn send_reports(&mut self) {
        if self.credits > 0 {
            wire::put_credits(&mut self.reports.bytes, self.credits);
            self.credits = 0;
        }
        if !self.reports.bytes.is_empty() {
            self.worker.push_message(&self.reports.bytes);
            self.reports.clear();
        }
    }
}

impl MessageBuilder {
    fn clear(&mut self) {
        self.bytes.clear();
        self.item_count = 0;
    }
}

impl Broker for Egret {
    #[inline]
    fn enqueue(&mut self, payload: &[u8]) {
        if self.tasks.item_count == BATCH_MAX {
            self.send_tasks();
        }
        if self.tasks.item_count == 0 {
            self.tasks.bytes.extend_from_slice(&self.message_prefix);
        }
        wire::put_new_task(&mut self.tasks.bytes, payload);
        self.tasks.item_count += 1;
    }

    fn add_credits(&mut self, credits: u32) {
        self.credits += credits;
    }

    #[inline]
    fn complete(&mut self, handle: &[u8]) {
        if self.reports.item_count == BATCH_MAX {
            self.send_reports();
        }
        wire::put_completed(&mut self.reports.bytes, handle, RESULT);
        self.reports.item_count += 1;
    }

    fn poll(&mut self, context: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>> {
        // While a stream can take no more, what comes meanwhile goes into one message.
        if self.producer.is_flushed() {
            self.send_tasks();
        }
        if self.worker.is_flushed() {
            self.send_reports();
        }
        let produced =
            self.producer.poll(context, |message| read_produce_response(message, events))?;
        let worked = self.worker.poll(context, |message| read_work_response(message, events))?;
        if produced.is_ready() || worked.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

/// Adds the events of an encoded `ProduceResponse`.
fn read_produce_response(message: &[u8], events: &mut Events) -> Result<()> {
    let mut fields = Fields(message);
    while let Some((_, value)) = fields.next()? {
        let Value::Bytes(outcome) = value else {
            continue;
        };
        let (mut number, mut error) = (0, None);
        let mut fields = Fields(outcome);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(value)) => number = value,
                (4, Value::Bytes(value)) => error = Some(value),
                _ => {}
            }
        }
        match error {
            None => events.enqueued.push(number),
            Some(error) => events.refused_enqueues.push((number, read_error_code(error)?)),
        }
    }
    Ok(())
}

/// Adds the events of an encoded `WorkResponse`.
fn read_work_response(message: &[u8], events: &mut Events) -> Result<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (2, Value::Bytes(task)) => read_assignment(task, events)?,
            (3, Value::Bytes(mut numbers)) => {
                while !numbers.is_empty() {
                    events.completed.push(wire::varint(&mut numbers)?);
                }
            }
            (3, Value::Varint(number)) => events.completed.push(number),
            (4, Value::Bytes(refusal)) => {
                let (mut number, mut cause) = (0, String::new());
                let mut fields = Fields(refusal);
                while let Some(field) = fields.next()? {
                    match field {
                        (1, Value::Varint(value)) => number = value,
                        (2, Value::Bytes(error)) => cause = read_error_code(error)?,
                        _ => {}
                    }
                }
                events.refused_completions.push((number, cause));
            }
            // The greeting; and lost leases, of which a task that is handed out again tells.
            _ => {}
        }
    }
    Ok(())
}

#[inline]
fn read_assignment(task: &[u8], events: &mut Events) -> Result<()> {
    let (mut payload, mut lease): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields(task);
    while let Some(field) = fields.next()? {
        match field {
            (3, Value::Bytes(value)) => payload = value,
            (5, Value::Bytes(value)) => lease = value,
            _ => {}
        }
    }
    events.push_delivery(payload, lease)
}

/// The code of an `Error`.
fn read_error_code(error: &[u8]) -> Result<String> {
    let mut fields = Fields(error);
    while let Some(field) = fields.next()? {
        if let (1, Value::Bytes(code)) = field {
            return Ok(String::from_utf8_lossy(code).into_owned());
        }
    }
    Ok("no code".to_owned())
}
