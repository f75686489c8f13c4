//! Enqueueing: tasks are validated and encoded by the caller's thread, and submitted to their
//! partitions.
//!
//! One task on its way, in order: a frontend's `NewTask` ([`NewTask`], validated here), an `Item`
//! ([`Item`]: its encoded record, in the part of its partition), `Submission::Enqueue` in the
//! partition's inbox, a `Command::Enqueue` in the batch of the log, and an entry in the partition's
//! state. An `EnqueueReceipt` goes back through the [`ProduceSink`] once the batch is committed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sha2::{Digest, Sha256};

use super::destination;
use super::new_task::{
    NewTask, check_duration, check_list_len, check_start_time, check_text, invalid, task_options,
};
use super::queue_handle::QueueHandle;
use super::queues::Queues;
use super::sinks::ProduceSink;
use super::submission::{EnqueueBatch, Grouping, Item, Submission};
use crate::core::lanes::{PRIORITY_COUNT, PRIORITY_DEFAULT};
use crate::error::QueueError;
use crate::model::SHARD_BITS;
use crate::store::content::{self, Content, Format, Private, check_json};

/// Bytes that are submitted to a partition at once, unless a single task has more.
const PART_BYTES_MAX: usize = 512 << 10;

/// Tasks that are submitted to a partition at once, so that those of other tenants take turns with
/// a large call.
const PART_TASKS_MAX: usize = 256;

/// New tasks of one caller, sorted by partition.
pub struct Enqueues<'q> {
    queues: &'q Queues,
    /// The partition for tasks without a key: the same for a whole batch, so that one log writes
    /// it.
    round_robin: u64,
    tenant: u32,
    parts: Vec<EnqueuePart>,
    /// Parts that have grown large, with their partitions.
    full_parts: Vec<(usize, EnqueuePart)>,
}

#[derive(Default)]
struct EnqueuePart {
    items: Vec<Item>,
    bytes: Vec<u8>,
}

/// 128 bits of the SHA-256 of a key's parts; never zero.
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
pub(crate) const KIND_ORIGIN: u8 = 3;
pub(crate) const KIND_CHAIN: u8 = 4;

impl<'q> Enqueues<'q> {
    /// An empty batch.
    ///
    /// # Errors
    /// When the engine is not running.
    pub fn new(queues: &'q Queues) -> Result<Self, QueueError> {
        let partitions = queues.inner.partitions()?;
        let count = partitions.len();
        let next = queues.inner.next_partition.fetch_add(1, Ordering::Relaxed);
        // A failed partition gets only the tasks whose key belongs to it.
        let mut candidates = (next..).take(count);
        let is_running = |number: &u64| {
            let partition = (*number % count as u64) as usize;
            !partitions[partition].inbox.is_closed()
        };
        Ok(Self {
            queues,
            round_robin: candidates.find(is_running).unwrap_or(next),
            tenant: 0,
            parts: (0..count).map(|_| EnqueuePart::default()).collect(),
            full_parts: Vec::new(),
        })
    }

    /// Validates a task and encodes it, under the caller's number for it.
    ///
    /// # Errors
    /// What is wrong with it; the other tasks are not affected.
    pub fn add(
        &mut self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
    ) -> Result<(), QueueError> {
        let item = self.check_task(number, queue, task)?;
        self.push_task(item, queue, task)
    }

    /// As [`Enqueues::add`], for a task with an external key: enqueued again with the same `origin`
    /// within `window_ms`, it is the task of the first time.
    ///
    /// # Errors
    /// As for [`Enqueues::add`].
    pub(crate) fn add_with_origin(
        &mut self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
        origin: &str,
        window_ms: u64,
    ) -> Result<(), QueueError> {
        let mut item = self.check_task(number, queue, task)?;
        let hash = key_hash(KIND_ORIGIN, queue.id, &[origin]);
        item.origin = Some((hash, window_ms));
        item.shard = self.choose_shard(item.key, item.unique.or(item.origin));
        self.push_task(item, queue, task)
    }

    fn push_task(
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
            self.full_parts.push((partition, std::mem::take(part)));
        }
        let item = encode_task(item, task, &[], &mut part.bytes);
        part.items.push(item);
        Ok(())
    }

    /// Validates a task. Its variable-length fields are encoded later, by [`encode_task`].
    pub(crate) fn check_task(
        &self,
        number: u64,
        queue: &QueueHandle,
        task: &NewTask<'_>,
    ) -> Result<Item, QueueError> {
        check_content(self.queues, task)?;
        let priority = match task.priority {
            None => PRIORITY_DEFAULT,
            Some(priority) if (priority as usize) < PRIORITY_COUNT => priority as u8,
            Some(priority) => return invalid("priority", format!("{priority} is not from 0 to 9")),
        };
        if priority != PRIORITY_DEFAULT {
            queue.mark_prioritized();
        }
        let key = match task.ordering_key {
            "" => 0,
            key => key_hash(KIND_ORDERING, queue.id, &[key]),
        };
        check_start_time(task)?;
        let unique = match task.unique_key {
            "" => None,
            unique => {
                check_duration("unique_window_ms", task.unique_window_ms)?;
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
            shard: self.choose_shard(key, unique),
            priority,
            callback: !task.callback_url.is_empty(),
            run_at_ms: task.run_at_ms,
            delay_ms: task.delay_ms,
            key,
            unique,
            origin: None,
            options: task_options(task)?,
            tags: 0..0,
            after: 0..0,
            content: 0..0,
        })
    }

    /// By the ordering key, so that its tasks share a partition; else by the unique key, so that
    /// duplicates share one; else any.
    pub(crate) fn choose_shard(&self, key: u128, unique: Option<(u128, u64)>) -> u16 {
        let shard_count = 1 << SHARD_BITS;
        match (key, unique) {
            (0, None) => {
                let partition = self.round_robin % self.parts.len() as u64;
                let width = shard_count / self.parts.len() as u64;
                // The first shard of the partition: it is the same for any number of them.
                let first = (partition * shard_count).div_ceil(self.parts.len() as u64);
                (first + self.round_robin / self.parts.len() as u64 % width) as u16
            }
            (0, Some((hash, _))) => (hash >> 64) as u16 & (shard_count - 1) as u16,
            (key, _) => (key >> 64) as u16 & (shard_count - 1) as u16,
        }
    }

    /// Refuses a task that waits for too many others.
    pub(crate) fn check_after_count(&self, count: usize) -> Result<(), QueueError> {
        check_list_len("after", count)
    }

    /// Submits all tasks; `sink` receives the outcome of each.
    pub fn submit(self, sink: &Arc<dyn ProduceSink>) {
        let full = self.full_parts.into_iter();
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
                let outcomes = numbers.into_iter().map(|number| (number, Err(error.clone())));
                sink.deliver_receipts(&outcomes.collect::<Vec<_>>());
            }
        }
    }
}

/// Encodes a task's tags, dependencies and content into `bytes`, and sets the spans of `item`.
/// `schedule` is the encoded schedule of a scheduled task, else empty.
pub(crate) fn encode_task(
    mut item: Item,
    task: &NewTask<'_>,
    schedule: &[u8],
    bytes: &mut Vec<u8>,
) -> Item {
    let mut start = bytes.len() as u32;
    let mut take_span = |bytes: &Vec<u8>| {
        let span = start..bytes.len() as u32;
        start = span.end;
        span
    };
    content::put_tags(bytes, task.tags.iter().map(String::as_str));
    item.tags = take_span(bytes);
    for id in task.after {
        bytes.extend_from_slice(&id.to_bytes());
    }
    item.after = take_span(bytes);
    let content = Content {
        payload: task.payload,
        format: task.format,
        ordering_key: task.ordering_key,
        metadata: task.metadata.clone(),
        traceparent: task.traceparent,
        tracestate: task.tracestate,
        private: Private { callback_url: task.callback_url, unique_key: task.unique_key, schedule },
    };
    content::encode(bytes, &content);
    item.content = take_span(bytes);
    item
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
    check_list_len("tags", task.tags.len())?;
    for tag in task.tags {
        check_text("tags", tag)?;
    }
    check_list_len("metadata", task.metadata.len())?;
    for (name, value) in &task.metadata {
        check_text("metadata", name)?;
        check_text("metadata", value)?;
    }
    check_list_len("after", task.after.len())?;
    check_text("callback_url", task.callback_url)?;
    match task.callback_url {
        "" => Ok(()),
        url => destination::check_callback_url(url, &queues.inner.destinations),
    }
}
