//! Chains: tasks that are all enqueued or none.
//!
//! A chain goes to one partition, where it is one command of one commit. Keys may forbid that:
//! tasks with the same ordering or unique key belong to the partition of the key. Such a chain is
//! first written to a file ([`crate::store::chain`]) and is promised from then on: its tasks are
//! made in order, each under an origin of its own so that making one twice has no effect, and a
//! start of the engine finishes an interrupted chain before it answers requests.

mod validate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use egret_base::{CodedError, Kind, condition};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::core::command::{Command, Enqueue};
use crate::core::state::TaskLoad;
use crate::error::{QueueError, io_error};
use crate::model::TaskId;
use crate::store::chain::{self as store, Member};
use crate::store::record;
use crate::worker::chain::validate::{check_size, sort_by_links};
use crate::worker::engine_state::{EngineState, run_to_completion};
use crate::worker::enqueues::{Enqueues, KIND_CHAIN, KIND_ORIGIN, encode_task, key_hash};
use crate::worker::in_flight::InFlightPermit;
use crate::worker::internal_enqueue::ORIGIN_WINDOW_MS;
use crate::worker::new_task::{NewTask, check_batch};
use crate::worker::queue_handle::QueueHandle;
use crate::worker::queues::Queues;
use crate::worker::sinks::{EnqueueReceipt, ProduceSink};
use crate::worker::submission::{EnqueueBatch, Grouping, Item, Submission};

/// The wait before a promised task is submitted again to a full partition.
const PROMISE_PAUSE: Duration = Duration::from_millis(100);

/// A task of a chain.
pub struct ChainTask<'a> {
    /// Queue that the task goes to.
    pub queue: Arc<QueueHandle>,
    /// The task, with the tasks outside of the chain that it waits for.
    pub task: NewTask<'a>,
    /// Indexes of the tasks of the chain that it waits for.
    pub links: Vec<usize>,
    /// Key of what it was made from, and for how many milliseconds that is remembered.
    pub origin: Option<(&'a str, u64)>,
}

/// Why no task of a chain was made.
#[derive(Clone, Debug)]
pub struct ChainRefusal {
    /// The task at fault, where it is one.
    pub task: Option<usize>,
    /// The error that refused the chain.
    pub error: QueueError,
}

impl ChainRefusal {
    /// The error for the task at this index.
    pub fn error_for(&self, index: usize) -> QueueError {
        let is_transient = self.error.retryable() || self.error.kind() == Kind::LimitReached;
        match self.task {
            Some(task) if task != index && !is_transient => QueueError::Invalid {
                what: "after",
                reason: format!("`#{task}` of the same chain was not enqueued: {}", self.error),
            },
            _ => self.error.clone(),
        }
    }
}

impl From<QueueError> for ChainRefusal {
    fn from(error: QueueError) -> Self {
        Self { task: None, error }
    }
}

struct EncodedChain {
    tenant: u32,
    /// Each after those it waits for; numbered by their indexes in the chain.
    items: Vec<Item>,
    links: Vec<Vec<u32>>,
    bytes: Vec<u8>,
}

impl Queues {
    /// Makes every task of a chain, or none. The answer is in the order of `tasks`.
    ///
    /// # Errors
    /// Why none was made. [`QueueError::PartitionFailed`] also when a chain that lies in several
    /// partitions was written down and is finished at the next start.
    pub async fn enqueue_chain(
        &self,
        tasks: &[ChainTask<'_>],
    ) -> Result<Vec<EnqueueReceipt>, ChainRefusal> {
        self.enqueue_chain_within(tasks, &Arc::default()).await
    }

    /// Makes every task of a chain, or none, and holds the permit in flight until all of them are
    /// answered, whether or not the caller waits for it.
    ///
    /// # Errors
    /// As for [`Queues::enqueue_chain`].
    pub async fn enqueue_chain_within(
        &self,
        tasks: &[ChainTask<'_>],
        in_flight: &Arc<InFlightPermit>,
    ) -> Result<Vec<EnqueueReceipt>, ChainRefusal> {
        let encoded = self.encode_chain(tasks)?;
        let mut partitions = Vec::with_capacity(encoded.items.len());
        for item in &encoded.items {
            partitions.push(self.inner.partition_of(item.shard)?);
        }
        let order: Vec<u64> = encoded.items.iter().map(|item| item.number).collect();
        let is_single_partition = partitions.iter().all(|partition| *partition == partitions[0]);
        let outcomes = match partitions.first() {
            None => return Ok(Vec::new()),
            Some(first) if is_single_partition => {
                self.commit_chain(*first, encoded, in_flight).await?
            }
            Some(_) => self.promise_chain(encoded, in_flight).await?,
        };
        let mut numbered: Vec<(u64, EnqueueReceipt)> = order.into_iter().zip(outcomes).collect();
        numbered.sort_unstable_by_key(|(place, _)| *place);
        Ok(numbered.into_iter().map(|(_, outcome)| outcome).collect())
    }

    fn encode_chain(&self, tasks: &[ChainTask<'_>]) -> Result<EncodedChain, ChainRefusal> {
        check_batch(tasks.len())?;
        check_size(tasks, self.config().chain_bytes_max.bytes())?;
        let order = sort_by_links(tasks)?;
        let enqueues = Enqueues::new(self)?;
        let mut encoded = EncodedChain {
            tenant: tasks.first().map_or(0, |task| task.queue.tenant_number),
            items: Vec::with_capacity(tasks.len()),
            links: Vec::with_capacity(tasks.len()),
            bytes: Vec::new(),
        };
        let mut item_indexes = vec![0; tasks.len()];
        for index in order {
            let task = &tasks[index];
            let to_refusal = |error| ChainRefusal { task: Some(index), error };
            let checked = enqueues.check_task(index as u64, &task.queue, &task.task);
            let mut item = checked.map_err(to_refusal)?;
            enqueues
                .check_after_count(task.task.after.len() + task.links.len())
                .map_err(to_refusal)?;
            item.origin = task.origin.map(|(origin, window_ms)| {
                (key_hash(KIND_ORIGIN, task.queue.id, &[origin]), window_ms)
            });
            item_indexes[index] = encoded.items.len() as u32;
            encoded.links.push(task.links.iter().map(|link| item_indexes[*link]).collect());
            let item = encode_task(item, &task.task, &[], &mut encoded.bytes);
            encoded.items.push(item);
        }
        assign_shards(&enqueues, &mut encoded.items);
        Ok(encoded)
    }

    async fn commit_chain(
        &self,
        partition: usize,
        encoded: EncodedChain,
        in_flight: &Arc<InFlightPermit>,
    ) -> Result<Vec<EnqueueReceipt>, QueueError> {
        let part = ChainPart {
            tenant: encoded.tenant,
            grouping: Grouping::Chain(encoded.links),
            items: encoded.items,
            bytes: encoded.bytes,
            in_flight: in_flight.clone(),
        };
        let outcomes = self.inner.enqueue_batch(partition, part).await;
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Writes the chain to a file and makes its tasks. The definitions of queues are locked
    /// meanwhile, so that no task is refused after it was promised.
    async fn promise_chain(
        &self,
        encoded: EncodedChain,
        in_flight: &Arc<InFlightPermit>,
    ) -> Result<Vec<EnqueueReceipt>, QueueError> {
        let (inner, in_flight) = (self.inner.clone(), in_flight.clone());
        run_to_completion(async move {
            let _in_flight = in_flight;
            let _definition_guard = inner.definition_lock.clone().lock_owned().await;
            inner.check_promise(&encoded).await?;
            let mut random = [0; 8];
            inner.entropy.fill(&mut random);
            let number = u64::from_le_bytes(random);
            let members = build_members(&encoded, number);
            let directory = inner.directory.join("chains");
            let path = store::path(&directory, number);
            let written = {
                let (path, members) = (path.clone(), members.clone());
                tokio::task::spawn_blocking(move || {
                    egret_base::durable::create_directory(&directory)?;
                    store::write(&path, &members)
                })
            };
            let written = written.await.map_err(|_| QueueError::Stopping)?;
            written.map_err(io_error("writing", &path))?;
            let outcomes = inner.enqueue_members(encoded.tenant, &members).await?;
            remove_chain_file(&path).await;
            Ok(outcomes)
        })
        .await
    }

    /// Whether a chain was interrupted by the end of the last run.
    pub(crate) fn has_unfinished_chains(&self) -> Result<bool, QueueError> {
        Ok(!self.unfinished_chains()?.is_empty())
    }

    fn unfinished_chains(&self) -> Result<Vec<PathBuf>, QueueError> {
        let directory = self.inner.directory.join("chains");
        let listed = store::list(&directory).map_err(io_error("reading", &directory))?;
        Ok(listed.into_iter().map(|(_, path)| path).collect())
    }

    /// Makes the missing tasks of chains that the last run has promised.
    pub(crate) async fn finish_chains(&self) -> Result<(), QueueError> {
        for path in self.unfinished_chains()? {
            let file = std::fs::read(&path).map_err(io_error("reading", &path))?;
            let result = match store::decode(&file) {
                Ok(members) => self.inner.enqueue_members(0, &members).await.map(drop),
                Err(error) => Err(error.into()),
            };
            match result {
                Ok(()) => remove_chain_file(&path).await,
                Err(error) => {
                    tracing::error!(%error, path = %path.display(), "cannot finish a chain; retrying at the next start");
                }
            }
        }
        Ok(())
    }
}

/// Removes the file of a finished chain.
async fn remove_chain_file(path: &Path) {
    // A leftover file is read at the next start, and changes nothing.
    if let Err(error) = tokio::fs::remove_file(path).await {
        let reason = format_args!("{}: {error}", path.display());
        let message = "cannot remove the file of a finished chain";
        condition::occur("queue_chain_files_left", "chains", reason, message);
    }
}

/// Puts the tasks without a key into the partition of the first with one. A chain without keys goes
/// to any partition, or by its origin always to the same one.
fn assign_shards(enqueues: &Enqueues<'_>, items: &mut [Item]) {
    let is_pinned = |item: &Item| item.key != 0 || item.unique.is_some();
    let first = items.iter().find(|item| is_pinned(item)).or(items.first());
    let Some(first) = first else {
        return;
    };
    let shard = enqueues.choose_shard(first.key, first.unique.or(first.origin));
    for item in items.iter_mut().filter(|item| !is_pinned(item)) {
        item.shard = shard;
    }
}

fn build_members(encoded: &EncodedChain, number: u64) -> Vec<Member> {
    let items = encoded.items.iter().zip(&encoded.links);
    let members = items.enumerate().map(|(index, (item, links))| {
        let mut command = item.as_command(&encoded.bytes);
        let place = index.to_string();
        let hash = key_hash(KIND_CHAIN, item.queue, &[&number.to_string(), &place]);
        command.origin = command.origin.or(Some((hash, ORIGIN_WINDOW_MS)));
        let mut record = Vec::new();
        record::encode_enqueue(&command, &mut record);
        Member { record, links: links.clone() }
    });
    members.collect()
}

type Outcome = (u64, Result<EnqueueReceipt, QueueError>);

/// Tasks of a chain that one partition makes at once.
struct ChainPart {
    tenant: u32,
    grouping: Grouping,
    items: Vec<Item>,
    bytes: Vec<u8>,
    /// Held until the partition has answered.
    in_flight: Arc<InFlightPermit>,
}

/// A task of a chain, checked with its partition before the chain is promised.
struct PromisedTask {
    queue: u32,
    keys: [Option<(u128, u64)>; 2],
    load: TaskLoad,
}

/// Sends every outcome on; the channel is as long as its batch.
struct Outcomes {
    sender: UnboundedSender<Outcome>,
    _in_flight: Arc<InFlightPermit>,
}

impl ProduceSink for Outcomes {
    fn deliver_receipts(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            // The caller may have gone away.
            let _ = self.sender.send(outcome.clone());
        }
    }
}

impl EngineState {
    /// Hands a batch to a partition. The outcomes are in the order of the items.
    async fn enqueue_batch(&self, partition: usize, part: ChainPart) -> Vec<Outcome> {
        let numbers: Vec<u64> = part.items.iter().map(|item| item.number).collect();
        let refuse_all = |error: &QueueError| {
            let numbers = numbers.iter();
            numbers.map(|number| (*number, Err(error.clone()))).collect()
        };
        let (sender, mut receiver) = unbounded_channel();
        let batch = EnqueueBatch {
            tenant: part.tenant,
            grouping: part.grouping,
            items: part.items,
            bytes: Arc::new(part.bytes),
            sink: Arc::new(Outcomes { sender, _in_flight: part.in_flight }),
        };
        if let Err(error) = self.submit(partition, Submission::Enqueue(batch)) {
            return refuse_all(&error);
        }
        let mut outcomes = Vec::with_capacity(numbers.len());
        while let Some(outcome) = receiver.recv().await {
            outcomes.push(outcome);
        }
        if outcomes.len() == numbers.len() {
            outcomes
        } else {
            refuse_all(&self.end_reason(partition))
        }
    }

    /// Checks that every partition accepts its part of a chain.
    async fn check_promise(&self, encoded: &EncodedChain) -> Result<(), QueueError> {
        let mut parts: BTreeMap<usize, Vec<PromisedTask>> = BTreeMap::new();
        for (item, links) in encoded.items.iter().zip(&encoded.links) {
            let partition = self.partition_of(item.shard)?;
            let mut load = item.load();
            load.bytes += (links.len() * size_of::<TaskId>()) as u64;
            parts.entry(partition).or_default().push(PromisedTask {
                queue: item.queue,
                keys: [item.origin, item.unique],
                load,
            });
        }
        let shares = *self.task_shares(self.partitions()?.len());
        for (partition, tasks) in parts {
            let reply = self.run_in_turn(partition, move |turn| {
                // A task that was made before takes no room.
                let candidates = tasks.iter();
                let new_tasks =
                    candidates.filter(|task| turn.state.find_made_before(task.keys).is_none());
                let added_load: TaskLoad = new_tasks.map(|task| task.load).sum();
                if added_load.tasks > 0 {
                    shares.check(turn.state, tasks[0].queue, added_load)?;
                }
                let mut tasks = tasks.iter();
                Ok(tasks.try_for_each(|task| turn.state.check_intake(task.queue))?)
            });
            let checked: Result<(), QueueError> = reply.await?;
            checked?;
        }
        Ok(())
    }

    /// Makes the tasks of a promised chain one after the other.
    async fn enqueue_members(
        &self,
        tenant: u32,
        members: &[Member],
    ) -> Result<Vec<EnqueueReceipt>, QueueError> {
        let mut receipts: Vec<EnqueueReceipt> = Vec::with_capacity(members.len());
        for member in members {
            let Command::Enqueue(task) = record::decode(&member.record)? else {
                return Err(QueueError::Stopping);
            };
            let mut after = task.after.to_vec();
            let links = member.links.iter();
            after.extend(links.flat_map(|link| receipts[*link as usize].id.to_bytes()));
            let task = Enqueue { after: &after, ..task };
            receipts.push(self.enqueue_member(tenant, &task).await?);
        }
        Ok(receipts)
    }

    async fn enqueue_member(
        &self,
        tenant: u32,
        task: &Enqueue<'_>,
    ) -> Result<EnqueueReceipt, QueueError> {
        let partition = self.partition_of(task.shard)?;
        loop {
            let (items, bytes) = Item::from_enqueue(task);
            let part = ChainPart {
                tenant,
                grouping: Grouping::Promised,
                items,
                bytes,
                in_flight: Arc::default(),
            };
            let outcomes = self.enqueue_batch(partition, part).await;
            let outcome = outcomes.into_iter().next().map(|(_, outcome)| outcome);
            match outcome.unwrap_or(Err(QueueError::Stopping)) {
                Err(error @ (QueueError::DiskFull { .. } | QueueError::Limit(_))) => {
                    tracing::debug!(%error, "a task of a chain waits until the queue accepts tasks");
                    tokio::time::sleep(PROMISE_PAUSE).await;
                }
                // Its queue was deleted while Egret did not run: what waits for it is cancelled, as
                // if the task had been deleted with the queue.
                Err(QueueError::QueueNotFound { .. } | QueueError::Draining) => {
                    return Ok(EnqueueReceipt { id: TaskId::from_bytes([0; 16]), replayed: false });
                }
                outcome => return outcome,
            }
        }
    }
}
