//! Starts and stops the partitions' threads, and recovers their state at a start.

mod admission_queue;
pub(crate) mod attachment_store;
mod attachment_upkeep;
mod callbacks;
pub(crate) mod chain;
pub(crate) mod define_queue;
pub(crate) mod deliver;
pub(crate) mod destination;
mod dispatch;
pub(crate) mod engine_state;
pub(crate) mod enqueues;
pub(crate) mod in_flight;
pub(crate) mod internal_enqueue;
pub(crate) mod limits;
mod mailer;
mod monotonic_clock;
pub(crate) mod name;
pub(crate) mod new_task;
pub(crate) mod outbox;
pub(crate) mod partition;
pub(crate) mod partition_handle;
pub(crate) mod precedence;
pub(crate) mod queue_handle;
pub(crate) mod queues;
pub(crate) mod read_task;
mod reconcile;
mod recovery;
pub(crate) mod reports;
pub(crate) mod schedule_locations;
pub(crate) mod schedule_runner;
pub(crate) mod session;
pub(crate) mod settings_change;
pub(crate) mod sinks;
pub(crate) mod submission;
pub(crate) mod task_shares;
pub(crate) mod task_view;
pub(crate) mod turn;
mod upkeep;
pub(crate) mod watch;
pub(crate) mod worker_handle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use egret_base::durable;
use egret_base::lifecycle::{BoxFuture, FailedPart, Readiness, Service, StartError};
use egret_base::parts::{self, KNOWN_PARTS, PartsError};
use egret_base::sync::lock;
use egret_log::{
    Directory, Durability, FileLog, Inbox, InboxLimits, KnownLog, KnownLogs, Log, LogConfig,
    LogReader, Seq,
};

use crate::config::QueueConfig;
use crate::core::state::State;
use crate::error::{QueueError, io_error};
use crate::model::SHARD_BITS;
use crate::store::snapshot;
use crate::worker::engine_state::EngineState;
use crate::worker::partition_handle::{PartitionHandle, part_name};
use crate::worker::queue_handle::QueueHandle;
use crate::worker::queues::Queues;
use admission_queue::TenantBufferQuota;
use dispatch::Dispatcher;
use mailer::PartitionMailer;
use partition::{Partition, PartitionParts};
use upkeep::Upkeep;

/// The largest batch of a log, in bytes.
const BATCH_BYTES_MAX: u64 = 12 << 20;

/// Bytes of a record beside a payload or a result, at most: tags, metadata, keys, names of
/// attachments.
const RECORD_OVERHEAD_BYTES_MAX: usize = 1 << 20;

/// Attachments that fit into the record of a completion.
const ATTACHMENTS_MAX: u32 = 1_000;

/// Segments of the log that work on tasks may use when the disk is full.
const RESERVE_SEGMENTS: u64 = 1;

impl Service for Queues {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            self.start_partitions().await.map_err(|error| StartError {
                service: "queue",
                is_fatal: matches!(error, QueueError::Invalid { .. }),
                message: egret_base::error::chain(&error),
            })
        })
    }

    fn ready(&self) -> Readiness {
        if self.inner.stopping.load(Ordering::Acquire) {
            return Readiness::NotReady("stopping".to_owned());
        }
        self.inner.readiness()
    }

    fn failed_parts(&self) -> Vec<FailedPart> {
        let partitions = self.inner.partitions.get().into_iter().flatten();
        let failed = partitions.enumerate().filter_map(|(number, partition)| {
            let failure = partition.failure.get()?;
            let remedy = if matches!(failure, QueueError::PartitionUnusable { .. }) {
                format!("stop egret; `egret repair queue/{number:03}` shows what can be saved")
            } else {
                "check the disk, then restart egret".to_owned()
            };
            let reason = match failure.failed_partition() {
                Some(_) => failure.to_string(),
                None => self.inner.unusable_error(number, failure).to_string(),
            };
            Some(FailedPart { part: part_name(number), reason, remedy })
        });
        failed.collect()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.store(true, Ordering::Release);
            for partition in self.inner.partitions.get().into_iter().flatten() {
                partition.inbox.close();
            }
            if let Some(upkeep) = lock(&self.inner.attachment_upkeep).take() {
                // The rest is found at the next start.
                upkeep.abort();
            }
            let callbacks = lock(&self.inner.callbacks).take();
            if let Some(sending) = callbacks {
                // Those under way are sent again after the start: their leases expire.
                sending.abort();
            }
            let threads = std::mem::take(&mut *lock(&self.inner.threads));
            let joined = tokio::task::spawn_blocking(move || {
                threads.into_iter().all(|thread| thread.join().is_ok())
            });
            if !joined.await.unwrap_or(false) {
                tracing::error!("a partition thread of the queue panicked");
            }
        })
    }
}

/// Refuses settings under which a request is accepted that fits into no batch of a log.
fn check_config(config: &QueueConfig) -> Result<(), QueueError> {
    let invalid = |what, reason| Err(QueueError::Invalid { what, reason });
    let content_bytes_max =
        partition::content_bytes_max(BATCH_BYTES_MAX as usize) - RECORD_OVERHEAD_BYTES_MAX;
    for (what, size) in [
        ("queue.payload_bytes_max", config.payload_bytes_max),
        ("queue.chain_bytes_max", config.chain_bytes_max),
        ("queue.result_bytes_max", config.result_bytes_max),
    ] {
        if size.bytes() > content_bytes_max as u64 {
            let reason = format!(
                "{} bytes fit into no batch of the log: at most {content_bytes_max} do, larger results are attachments",
                size.bytes()
            );
            return invalid(what, reason);
        }
    }
    if config.attachments_max > ATTACHMENTS_MAX {
        let reason = format!("{} is more than {ATTACHMENTS_MAX}", config.attachments_max);
        return invalid("queue.attachments_max", reason);
    }
    Ok(())
}

impl Queues {
    async fn start_partitions(&self) -> Result<(), QueueError> {
        let inner = self.inner.clone();
        let opened = tokio::task::spawn_blocking(move || inner.open());
        let OpenedPartitions { mut partitions, failed } =
            opened.await.map_err(|_| QueueError::Stopping)??;
        let queues =
            reconcile::collect_queues(partitions.iter().map(|one| (one.partition, &one.state)));
        let live_queues: BTreeSet<u32> =
            queues.iter().filter(|entry| !entry.is_deleted).map(|known| known.id).collect();
        let settled = tokio::task::spawn_blocking(move || {
            let locations = recovery::locate_schedules(&mut partitions, &live_queues)?;
            Ok::<_, QueueError>((partitions, locations))
        });
        let (mut partitions, places) = settled.await.map_err(|_| QueueError::Stopping)??;
        *lock(&self.inner.schedules) = places;
        // Ids of deleted queues are not reused either: remembered keys contain them.
        let ids = partitions.iter().map(|one| one.state.next_queue_id());
        let next_queue = u64::from(ids.max().unwrap_or_default().max(1));
        for partition in &mut partitions {
            partition.publish_leased_counts();
        }
        let mut handles: BTreeMap<usize, Arc<PartitionHandle>> = failed.into_iter().collect();
        for partition in partitions {
            let number = partition.partition;
            handles.insert(number, partition.handle.clone());
            let thread = std::thread::Builder::new()
                .name(format!("queue-{number}"))
                .spawn(move || {
                    if let Err(error) = partition.run() {
                        tracing::error!(%error, partition = number, "a partition of the queue has failed");
                    }
                })
                .map_err(io_error("starting a thread for", &self.inner.directory))?;
            lock(&self.inner.threads).push(thread);
        }
        let shared = handles.into_values().collect();
        if self.inner.partitions.set(shared).is_err() {
            return Err(QueueError::Stopping);
        }
        let has_unfinished_chains = self.has_unfinished_chains()?;
        for known in queues {
            self.repair_queue(&known).await?;
            if !known.is_deleted {
                let queue = QueueHandle::new(known.id, &known.tenant, &known.name, known.settings);
                // Tasks of an unfinished chain may be in no partition yet.
                if known.has_priorities || has_unfinished_chains {
                    queue.mark_prioritized();
                }
                self.register_handle(Arc::new(queue));
            }
        }
        self.inner.next_queue.store(next_queue, Ordering::Release);
        self.finish_chains().await?;
        self.start_attachment_upkeep();
        self.start_callbacks().await
    }

    /// Refuses settings with which the engine cannot run, before anything is started.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub fn check_settings(&self) -> Result<(), QueueError> {
        check_config(&self.inner.config)
    }
}

/// The partitions that could be opened, and those that could not, by number.
struct OpenedPartitions {
    partitions: Vec<Partition<FileLog>>,
    failed: Vec<(usize, Arc<PartitionHandle>)>,
}

impl EngineState {
    /// Opens every partition's log and replays it. A failure does not stop the other partitions.
    fn open(&self) -> Result<OpenedPartitions, QueueError> {
        self.make_directories()?;
        let is_new = !self.directory.join("partitions").exists();
        let count = self.partition_count()?;
        let known_logs = KnownLogs::read(&self.directory, count, is_new)
            .map_err(io_error("reading", &self.directory.join(KNOWN_PARTS)))?;
        let durability = self.config.durability.with_interval(self.config.sync_interval.duration());
        let mut opened =
            OpenedPartitions { partitions: Vec::with_capacity(count), failed: Vec::new() };
        for number in 0..count {
            match self.open_partition(number, count, durability, known_logs.log(number)) {
                Ok(partition) => opened.partitions.push(partition),
                Err(error) => {
                    let failure = self.unusable_error(number, &error);
                    tracing::error!(error = %failure, "cannot start a partition of the queue");
                    opened.failed.push((number, Arc::new(PartitionHandle::failed(failure))));
                }
            }
        }
        self.attachments.scan(|id| {
            let number = (usize::from(id.shard()) * count) >> SHARD_BITS;
            let mut partitions = opened.partitions.iter();
            let partition = partitions.find(|one| one.partition == number)?;
            partition.state.tenant_of_task(id).map(Into::into)
        })?;
        let partitions = opened.partitions.iter();
        let logs = partitions.map(|partition| (partition.partition, &partition.log));
        if let Err(error) = known_logs.write("partitions", count, logs) {
            tracing::warn!(%error, "cannot write the list of partitions of the queue");
        }
        Ok(opened)
    }

    fn make_directories(&self) -> Result<(), QueueError> {
        check_config(&self.config)?;
        durable::create_directory(&self.directory).map_err(io_error("making", &self.directory))
    }

    /// How many partitions there are: as many as when the data directory was made.
    fn partition_count(&self) -> Result<usize, QueueError> {
        let configured = self.config.partitions;
        parts::load_or_create_count(&self.directory, "partitions", configured).map_err(|error| {
            match error {
                PartsError::Invalid(reason) => {
                    QueueError::Invalid { what: "queue.partitions", reason }
                }
                PartsError::Io { doing, path, source } => io_error(doing, &path)(source),
            }
        })
    }

    fn log_config(&self, durability: Durability) -> LogConfig {
        LogConfig {
            durability,
            segment_bytes: self.config.segment_size.bytes(),
            batch_bytes_max: BATCH_BYTES_MAX,
            spare_segments: self.config.spare_segments as usize,
            cache_bytes: self.config.cache_size.bytes() as usize,
            ..LogConfig::default()
        }
    }

    /// Limits of the inbox of one of so many partitions.
    fn inbox_limits(&self, partitions: usize) -> InboxLimits {
        InboxLimits {
            items_name: "queue.waiting_max",
            items_max: self.config.waiting_max as usize,
            bytes_name: "queue.waiting_bytes_max",
            bytes_max: self.config.waiting_bytes_max.bytes() as usize / partitions,
        }
    }

    fn open_partition(
        &self,
        number: usize,
        count: usize,
        durability: Durability,
        known_log: KnownLog,
    ) -> Result<Partition<FileLog>, QueueError> {
        let config = &self.config;
        let directory = self.directory.join(format!("{number:03}"));
        let log_directory = directory.join("log");
        known_log.check_directory(&log_directory).map_err(QueueError::Log)?;
        let log_config = known_log.apply_to(self.log_config(durability));
        durable::create_directory(&directory).map_err(io_error("making", &directory))?;
        parts::claim_place(&directory, &format!("queue/{number:03}"))
            .map_err(io_error("reading", &directory))?;
        let (replay_from, mut state, snapshot_bytes) =
            snapshot::read(&directory)?.unwrap_or_else(|| (Seq::FIRST, State::default(), 0));
        let disk = Directory::open(&log_directory).map_err(io_error("opening", &log_directory))?;
        let (mut log, recovery) =
            recovery::open_log(disk, log_config, replay_from, self.entropy.clone())?;
        if let Some(torn) = &recovery.torn {
            tracing::warn!(
                partition = number,
                ?torn,
                "the log ends with an incomplete record, which is cut off"
            );
        }
        recovery::replay(&log, replay_from, number, &mut state)?;
        let grace_ms = config.lease_grace.0;
        recovery::begin_epoch(&mut log, &mut state, &*self.clock, &*self.entropy, grace_ms)?;
        let limits = self.inbox_limits(count);
        let reader = log.reader();
        let shared = Arc::new(PartitionHandle {
            tenant_quota: TenantBufferQuota::new(limits.bytes_max),
            inbox: Inbox::new(limits),
            ready_queues: Arc::default(),
            read_record: Box::new(move |seq| reader.read(seq)),
            failure: OnceLock::new(),
        });
        let snapshot_after_bytes = config.snapshot_after.bytes();
        let ready = shared.ready_queues.clone();
        Ok(Partition::new(PartitionParts {
            upkeep: Upkeep::new(
                directory.clone(),
                shared.clone(),
                snapshot_after_bytes,
                snapshot_bytes,
            ),
            handle: shared,
            state,
            log,
            clock: self.clock.clone(),
            entropy: self.entropy.clone(),
            metrics: self.metrics.clone(),
            dispatcher: Dispatcher::new(number, self.limits.clone(), self.ranks.clone(), ready),
            mailer: PartitionMailer::new(self.partitions.clone(), number),
            partition: number,
            task_shares: *self.task_shares(count),
            reserve_bytes: RESERVE_SEGMENTS * config.segment_size.bytes(),
            attachments: self.attachments.clone(),
            chain_messages_max: u64::from(config.chain_messages_max),
        }))
    }
}
