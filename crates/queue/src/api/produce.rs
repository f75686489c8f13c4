//! Enqueueing: tasks are checked and laid out where they come in, and handed to their partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use egret_base::Limit;
use sha2::{Digest, Sha256};

use super::destination;
use super::sink::ProduceSink;
use super::submit::{EnqueueBatch, Grouping, Item, Submission};
use super::{QueueHandle, Queues};
use crate::core::lanes::PRIORITIES;
pub use crate::core::lanes::PRIORITY_DEFAULT;
use crate::core::wheel::TIME_MAX_MS;
use crate::error::QueueError;
use crate::model::{RetryPolicy, SHARD_BITS, TaskId, TaskOptions};
use crate::store::content::{self, Content, Private, check_json};

pub use crate::store::content::Format;

/// Bytes that are handed to a partition at once, unless a single task has more.
const PART_BYTES_MAX: usize = 512 << 10;

/// Tasks that are handed to a partition at once, so that those of other tenants take turns with a large call.
const PART_TASKS_MAX: usize = 256;

/// Tasks in one call.
pub const BATCH_MAX: usize = 1_000;

/// Bytes of a key, a tag, or a name or value of metadata.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// Tags, entries of metadata, and tasks to wait for.
pub const MANY_MAX: usize = 64;

/// The longest that anything may be put off or kept: ten years, in milliseconds.
pub const LONG_MS: u64 = 10 * 366 * 86_400_000;

/// Attempts of a task, at most.
pub const ATTEMPTS_MAX: u16 = 10_000;

/// A task to be enqueued.
#[derive(Clone, Debug, Default)]
pub struct NewTask<'a> {
    /// What is to be worked on.
    pub payload: &'a [u8],
    /// What the payload is.
    pub format: Format,
    /// 0 to 9; 9 goes first.
    pub priority: Option<u32>,
    /// Empty: none.
    pub ordering_key: &'a str,
    /// Not before, in Unix milliseconds; zero: at once.
    pub run_at_ms: u64,
    /// Not before so many milliseconds have passed.
    pub delay_ms: u64,
    /// Attempts before it is dead.
    pub max_attempts: Option<u32>,
    /// How long it waits between them.
    pub retry: Option<RetryPolicy>,
    /// The longest that an attempt may take, in milliseconds; zero: as the queue says.
    pub timeout_ms: u64,
    /// Empty: none.
    pub unique_key: &'a str,
    /// How long the unique key is remembered, in milliseconds; zero: as the queue says.
    pub unique_window_ms: u64,
    /// For people to find it by.
    pub tags: &'a [String],
    /// Names and values.
    pub metadata: BTreeMap<&'a str, &'a str>,
    /// W3C trace context.
    pub traceparent: &'a str,
    /// W3C trace context.
    pub tracestate: &'a str,
    /// Who is told of the end; empty: nobody.
    pub callback_url: &'a str,
    /// Tasks that must complete before.
    pub after: &'a [TaskId],
}

fn invalid<T>(what: &'static str, reason: impl Into<String>) -> Result<T, QueueError> {
    Err(QueueError::Invalid {
        what,
        reason: reason.into(),
    })
}

pub(crate) fn check_text(what: &'static str, text: &str) -> Result<(), QueueError> {
    if text.len() > TEXT_BYTES_MAX {
        let length = text.len();
        return invalid(
            what,
            format!("it has {length} bytes, at most {TEXT_BYTES_MAX} are allowed"),
        );
    }
    Ok(())
}

fn check_many(what: &'static str, count: usize) -> Result<(), QueueError> {
    if count > MANY_MAX {
        return invalid(
            what,
            format!("{count} are given, at most {MANY_MAX} are allowed"),
        );
    }
    Ok(())
}

fn check_span(what: &'static str, span_ms: u64) -> Result<(), QueueError> {
    if span_ms > LONG_MS {
        return invalid(what, format!("{span_ms} ms are more than ten years"));
    }
    Ok(())
}

/// Refuses a retry policy that cannot be meant.
pub(crate) fn check_retry(retry: &RetryPolicy) -> Result<(), QueueError> {
    check_span("retry.base_ms", retry.base_ms)?;
    check_span("retry.max_ms", retry.max_ms)?;
    if retry.max_ms < retry.base_ms {
        return invalid("retry.max_ms", "it is below base_ms");
    }
    Ok(())
}

/// Refuses a number of attempts that cannot be meant.
pub(crate) fn check_attempts(attempts: u32) -> Result<u16, QueueError> {
    match u16::try_from(attempts) {
        Ok(attempts @ 1..=ATTEMPTS_MAX) => Ok(attempts),
        _ => invalid(
            "max_attempts",
            format!("{attempts} is not from 1 to {ATTEMPTS_MAX}"),
        ),
    }
}

/// New tasks of one caller, sorted by partition.
pub struct Enqueues<'q> {
    queues: &'q Queues,
    /// The partition for tasks that may go anywhere: the same for a whole batch, so that one log writes it.
    spread: u64,
    tenant: u32,
    parts: Vec<Part>,
    /// Parts that have grown large, with their partitions.
    full: Vec<(usize, Part)>,
}

#[derive(Default)]
struct Part {
    items: Vec<Item>,
    bytes: Vec<u8>,
}

/// 128 bits of the SHA-256 of what makes a key the same; never zero.
pub(crate) fn key_hash(kind: u8, queue: u32, parts: &[&str]) -> u128 {
    let mut hash = Sha256::new();
    hash.update([kind]);
    hash.update(queue.to_le_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let bytes: [u8; 16] = digest[..16].try_into().expect("a digest has 32 bytes");
    u128::from_le_bytes(bytes).max(1)
}

const KIND_ORDERING: u8 = 1;
const KIND_UNIQUE: u8 = 2;
pub(super) const KIND_ORIGIN: u8 = 3;
pub(super) const KIND_CHAIN: u8 = 4;

impl<'q> Enqueues<'q> {
    /// Nothing yet.
    ///
    /// # Errors
    /// When the engine is not running.
    pub fn new(queues: &'q Queues) -> Result<Self, QueueError> {
        let partitions = queues.inner.partitions()?;
        let count = partitions.len();
        let next = queues.inner.spread.fetch_add(1, Ordering::Relaxed);
        // A partition that has failed gets only what its key sends there.
        let mut spreads = (next..).take(count);
        let is_running = |spread: &u64| {
            let partition = (*spread % count as u64) as usize;
            !partitions[partition].inbox.is_closed()
        };
        Ok(Self {
            queues,
            spread: spreads.find(is_running).unwrap_or(next),
            tenant: 0,
            parts: (0..count).map(|_| Part::default()).collect(),
            full: Vec::new(),
        })
    }

    /// Checks a task and lays it out, under the caller's number for it.
    ///
    /// # Errors
    /// What is wrong with it; the others are not concerned.
    pub fn add(
        &mut self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
    ) -> Result<(), QueueError> {
        let item = self.check(number, queue, task)?;
        self.lay_down(item, queue, task)
    }

    /// The same for a task that was made from something elsewhere: handed over again under the same
    /// `origin` within `window_ms`, it is the task of the first time.
    ///
    /// # Errors
    /// As for [`Enqueues::add`].
    pub(crate) fn add_from(
        &mut self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
        (origin, window_ms): (&str, u64),
    ) -> Result<(), QueueError> {
        let mut item = self.check(number, queue, task)?;
        let hash = key_hash(KIND_ORIGIN, queue.id, &[origin]);
        item.origin = Some((hash, window_ms));
        item.shard = self.shard(item.key, item.unique.or(item.origin));
        self.lay_down(item, queue, task)
    }

    fn lay_down(
        &mut self,
        item: Item,
        queue: &QueueHandle,
        task: &NewTask<'_>,
    ) -> Result<(), QueueError> {
        self.tenant = queue.tenant_number;
        let partition = self.queues.inner.partition_of(item.shard)?;
        let part = &mut self.parts[partition];
        let is_full = part.items.len() >= PART_TASKS_MAX
            || part.bytes.len() + task.payload.len() > PART_BYTES_MAX;
        if is_full && !part.items.is_empty() {
            self.full.push((partition, std::mem::take(part)));
        }
        let item = lay_out(item, task, &[], &mut part.bytes);
        part.items.push(item);
        Ok(())
    }

    /// Checks a task; its parts are laid out after.
    pub(crate) fn check(
        &self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
    ) -> Result<Item, QueueError> {
        check_content(self.queues, task)?;
        let priority = match task.priority {
            None => PRIORITY_DEFAULT,
            Some(priority) if (priority as usize) < PRIORITIES => priority as u8,
            Some(priority) => return invalid("priority", format!("{priority} is not from 0 to 9")),
        };
        if priority != PRIORITY_DEFAULT {
            queue.note_priority();
        }
        let key = match task.ordering_key {
            "" => 0,
            key => key_hash(KIND_ORDERING, queue.id, &[key]),
        };
        check_begin(task)?;
        let unique = match task.unique_key {
            "" => None,
            unique => {
                check_span("unique_window_ms", task.unique_window_ms)?;
                let window_ms = match task.unique_window_ms {
                    0 => queue.settings().unique_window_ms,
                    asked => asked,
                };
                let hash = key_hash(KIND_UNIQUE, queue.id, &[task.ordering_key, unique]);
                Some((hash, window_ms))
            }
        };
        Ok(Item {
            number,
            queue: queue.id,
            shard: self.shard(key, unique),
            priority,
            callback: !task.callback_url.is_empty(),
            run_at_ms: task.run_at_ms,
            delay_ms: task.delay_ms,
            key,
            unique,
            origin: None,
            options: options(task)?,
            tags: 0..0,
            after: 0..0,
            content: 0..0,
        })
    }

    /// By the ordering key, so that its tasks meet; else by the unique key, so that duplicates meet; else
    /// anywhere.
    pub(super) fn shard(&self, key: u128, unique: Option<(u128, u64)>) -> u16 {
        let spread = 1 << SHARD_BITS;
        match (key, unique) {
            (0, None) => {
                let partition = self.spread % self.parts.len() as u64;
                let width = spread / self.parts.len() as u64;
                // The first shard of the partition: it is the same for any number of them.
                let first = (partition * spread).div_ceil(self.parts.len() as u64);
                (first + self.spread / self.parts.len() as u64 % width) as u16
            }
            (0, Some((hash, _))) => (hash >> 64) as u16 & (spread - 1) as u16,
            (key, _) => (key >> 64) as u16 & (spread - 1) as u16,
        }
    }

    /// Refuses a task that waits for too many others.
    pub(super) fn check_waits(&self, count: usize) -> Result<(), QueueError> {
        check_many("after", count)
    }

    /// Hands everything to the partitions; `sink` is told the outcome of each task that was added.
    pub fn submit(self, sink: &Arc<dyn ProduceSink>) {
        let full = self.full.into_iter();
        for (partition, part) in full.chain(self.parts.into_iter().enumerate()) {
            if part.items.is_empty() {
                continue;
            }
            let numbers: Vec<u64> = part.items.iter().map(|item| item.number).collect();
            let batch = EnqueueBatch {
                grouping: Grouping::Separate,
                tenant: self.tenant,
                items: part.items,
                bytes: Arc::new(part.bytes),
                sink: sink.clone(),
            };
            let submission = Submission::Enqueue(batch);
            if let Err(error) = self.queues.inner.submit(partition, submission) {
                let outcomes = numbers
                    .into_iter()
                    .map(|number| (number, Err(error.clone())));
                sink.outcomes(&outcomes.collect::<Vec<_>>());
            }
        }
    }
}

/// Appends what a task carries, with the description of its schedule where it has one.
pub(crate) fn lay_out(
    mut item: Item,
    task: &NewTask<'_>,
    schedule: &[u8],
    bytes: &mut Vec<u8>,
) -> Item {
    let mut start = bytes.len() as u32;
    let mut end_of = |bytes: &Vec<u8>| {
        let span = start..bytes.len() as u32;
        start = span.end;
        span
    };
    content::put_tags(bytes, task.tags.iter().map(String::as_str));
    item.tags = end_of(bytes);
    for id in task.after {
        bytes.extend_from_slice(&id.to_bytes());
    }
    item.after = end_of(bytes);
    let content = Content {
        payload: task.payload,
        format: task.format,
        ordering_key: task.ordering_key,
        metadata: task.metadata.clone(),
        traceparent: task.traceparent,
        tracestate: task.tracestate,
        private: Private {
            callback_url: task.callback_url,
            unique_key: task.unique_key,
            schedule,
        },
    };
    content::put(bytes, &content);
    item.content = end_of(bytes);
    item
}

/// Refuses a time to begin at that cannot be meant.
fn check_begin(task: &NewTask<'_>) -> Result<(), QueueError> {
    if task.run_at_ms > 0 && task.delay_ms > 0 {
        return invalid("run_at_ms", "it is given beside delay_ms: give one of them");
    }
    check_span("delay_ms", task.delay_ms)?;
    if task.run_at_ms > TIME_MAX_MS {
        return invalid("run_at_ms", format!("{} is out of range", task.run_at_ms));
    }
    Ok(())
}

fn check_content(queues: &Queues, task: &NewTask<'_>) -> Result<(), QueueError> {
    let max_bytes = queues.config().payload_bytes_max.bytes();
    let size_bytes = task.payload.len() as u64;
    if size_bytes > max_bytes {
        return Err(QueueError::TooLarge {
            what: "the payload",
            size_bytes,
            limit: "queue.payload_bytes_max",
            max_bytes,
        });
    }
    if task.format == Format::Json {
        check_json("payload", task.payload)?;
    }
    check_text("ordering_key", task.ordering_key)?;
    check_text("unique_key", task.unique_key)?;
    check_text("traceparent", task.traceparent)?;
    check_text("tracestate", task.tracestate)?;
    check_many("tags", task.tags.len())?;
    for tag in task.tags {
        check_text("tags", tag)?;
    }
    check_many("metadata", task.metadata.len())?;
    for (name, value) in &task.metadata {
        check_text("metadata", name)?;
        check_text("metadata", value)?;
    }
    check_many("after", task.after.len())?;
    check_text("callback_url", task.callback_url)?;
    match task.callback_url {
        "" => Ok(()),
        url => destination::check(url, &queues.inner.destinations),
    }
}

fn options(task: &NewTask<'_>) -> Result<TaskOptions, QueueError> {
    if let Some(retry) = &task.retry {
        check_retry(retry)?;
    }
    check_span("timeout_ms", task.timeout_ms)?;
    Ok(TaskOptions {
        max_attempts: task.max_attempts.map(check_attempts).transpose()?,
        retry: task.retry,
        timeout_ms: (task.timeout_ms > 0).then_some(task.timeout_ms),
    })
}

/// Refuses a batch that is too long.
///
/// # Errors
/// The limit, by name.
pub fn check_batch(count: usize) -> Result<(), QueueError> {
    Ok(Limit::new("queue.batch_max", BATCH_MAX as u64).check(count as u64)?)
}
