//! Threads of the engine: how its parts are opened and its threads started, one a shard.

mod append;
pub(crate) mod delete;
mod fetch;
pub(crate) mod flush;
pub mod notify;
pub(crate) mod open_repaired;
pub(crate) mod query_threads;
pub(crate) mod recover;
pub mod rules;
pub mod scrape;
pub(crate) mod shard;
#[cfg(test)]
mod simulator;
mod snapshot;
pub(crate) mod upkeep;
pub(crate) mod write_ack;

pub use append::{Append, AppendError, AppendResult};
use append::{now_ms, timestamp, wait_until};
pub use snapshot::SnapshotOf;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use egret_base::durable;
use egret_base::lifecycle::hide_directory;
use egret_base::parts::{self, KNOWN_PARTS, PartsError};
use egret_base::sync::lock;
use egret_blocks::block::BlockCache;
use egret_blocks::catalog::Catalog;
use egret_blocks::core::plan::Policy;
use egret_blocks::core::window::FlushSchedule;
use egret_log::{Directory, FileLog, Inbox, InboxLimits, KnownLog, KnownLogs, LogConfig, Seq};

use crate::core::index::Index;
use crate::core::policy::parse_policy;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, FlushWatermark};
use crate::store::ha_tracker::HaTracker;
use query_threads::QueryThreads;
use recover::{replay, restore};
use shard::{Core, Shard, ShardShared};
use upkeep::{BlockMaintenance, Job, ShardHandle};

/// Threads that one query may use at most.
const QUERY_THREADS_MAX: u32 = 256;

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SeriesError {
    let path = path.to_owned();
    move |error| SeriesError::io(action, &path, error)
}

/// The shards by number, those that could be opened, and what their upkeep keeps of them.
#[derive(Default)]
struct OpenShards {
    shared: Vec<Arc<ShardShared>>,
    shards: Vec<Shard<FileLog>>,
    handles: Vec<ShardHandle>,
}

impl EngineInner {
    /// Opens every shard's log, replays it, and starts its thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), SeriesError> {
        self.check_settings()?;
        durable::create_directory(&self.directory).map_err(io_error("making", &self.directory))?;
        let policy = self.parse_policy()?;
        // An engine is started only once.
        let _ = self.retention_max_ms.set(policy.keep_max_ms());
        let now = self.clock.monotonic();
        let ha_tracker = HaTracker::open(&self.config, self.directory.clone(), now)?;
        let catalog = Arc::new(self.open_catalog()?);
        let OpenShards { shared, shards: started, handles: kept } = self.open_shards()?;
        for shard in started {
            let number = shard.core.shared.number;
            let thread = std::thread::Builder::new()
                .name(format!("series-{number}"))
                .spawn(move || {
                    if let Err(error) = shard.run() {
                        tracing::error!(%error, shard = number, "a shard of the series has failed");
                    }
                })
                .map_err(io_error("starting a thread for", &self.directory))?;
            lock(&self.threads).push(thread);
        }
        let root =
            Directory::open(&self.directory).map_err(io_error("opening", &self.directory))?;
        self.start_query_threads()?;
        let (job_sender, job_receiver) = std::sync::mpsc::channel::<Job>();
        let upkeep =
            BlockMaintenance::new(self.clone(), catalog.clone(), kept, root, policy, job_receiver);
        let inner = self.clone();
        let thread = std::thread::Builder::new()
            .name("series-upkeep".to_owned())
            .spawn(move || {
                // What a panic has left is not looked at any more.
                if catch_unwind(AssertUnwindSafe(|| upkeep.run())).is_err() {
                    inner.upkeep_failed.store(true, Ordering::Release);
                    let error = SeriesError::UpkeepFailed;
                    tracing::error!(%error, "the maintenance of the series has failed: no more blocks are written");
                }
            })
            .map_err(io_error("starting a thread for", &self.directory))?;
        lock(&self.threads).push(thread);
        *lock(&self.job_sender) = Some(job_sender);
        let is_first_start = ha_tracker.is_none_or(|tracker| self.ha_tracker.set(tracker).is_ok())
            && self.catalog.set(catalog).is_ok()
            && self.shards.set(shared).is_ok();
        is_first_start.then_some(()).ok_or(SeriesError::Stopping)
    }

    /// Opens every shard's log and replays it. One that cannot be opened stops none of the others.
    fn open_shards(self: &Arc<Self>) -> Result<OpenShards, SeriesError> {
        let is_new = !self.directory.join("shards").exists();
        let count = self.shard_count()?;
        let known_logs = KnownLogs::read(&self.directory, count, is_new)
            .map_err(io_error("reading", &self.directory.join(KNOWN_PARTS)))?;
        let results: Vec<Result<(Shard<FileLog>, ShardHandle), SeriesError>> =
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..count)
                    .map(|number| {
                        let known_log = known_logs.log(number);
                        scope.spawn(move || self.open_shard(number, count, known_log))
                    })
                    .collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    let joined = thread.join();
                    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                threads.into_iter().map(join).collect()
            });
        let mut all = OpenShards::default();
        for (number, result) in results.into_iter().enumerate() {
            let result = result.or_else(|error| self.open_repaired_shard(number, count, error));
            match result {
                Ok((shard, handle)) => {
                    all.shared.push(shard.core.shared.clone());
                    all.shards.push(shard);
                    all.handles.push(handle);
                }
                Err(error) => all.shared.push(Arc::new(self.new_failed_shared(number, &error))),
            }
        }
        // A repair has changed the list.
        let known_logs = if lock(&self.repaired_shards).is_empty() {
            known_logs
        } else {
            KnownLogs::read(&self.directory, count, false)
                .map_err(io_error("reading", &self.directory.join(KNOWN_PARTS)))?
        };
        let started = all.shards.iter();
        let logs = started.map(|shard| (usize::from(shard.core.shared.number), &shard.log));
        if let Err(error) = known_logs.write("shards", count, logs) {
            tracing::warn!(%error, "cannot write the list of shards of the series");
        }
        Ok(all)
    }

    /// Refuses settings with which the engine cannot run.
    pub(crate) fn check_settings(&self) -> Result<(), SeriesError> {
        self.parse_policy().map(drop)
    }

    /// What others know of a shard that could not be opened: it takes nothing in and has no series.
    fn new_failed_shared(&self, number: usize, error: &SeriesError) -> ShardShared {
        let reason = egret_base::error::chain(error);
        let data_dir = self.directory.parent().unwrap_or(&self.directory);
        let failure = SeriesError::ShardUnusable {
            shard: number as u16,
            reason: hide_directory(&reason, data_dir),
        };
        tracing::error!(error = %failure, "cannot start a shard of the series");
        let shared = self.new_shard_shared(number, 1);
        shared.inbox.close();
        // The lock is new.
        let _ = shared.failure.set(failure);
        shared
    }

    fn new_shard_shared(&self, number: usize, count: usize) -> ShardShared {
        ShardShared {
            number: number as u16,
            inbox: Inbox::new(InboxLimits {
                items_name: "series.waiting_max",
                items_max: self.config.waiting_max as usize,
                bytes_name: "series.waiting_bytes_max",
                bytes_max: self.config.waiting_bytes_max.bytes() as usize / count,
            }),
            index: Index::default(),
            head_bytes: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            has_duplicate_series: AtomicBool::new(false),
            failure: Default::default(),
        }
    }

    /// Starts one thread fewer than configured: the evaluating thread is one of them.
    fn start_query_threads(&self) -> Result<(), SeriesError> {
        let threads = match self.config.query_threads {
            0 => std::thread::available_parallelism().map_or(1, NonZero::get),
            threads if threads > QUERY_THREADS_MAX => {
                return Err(SeriesError::Invalid {
                    what: "series.query_threads",
                    reason: format!("{threads} is more than {QUERY_THREADS_MAX}"),
                });
            }
            threads => threads as usize,
        };
        if threads > 1 {
            let query_threads = QueryThreads::start(threads - 1).map_err(std::io::Error::other);
            let query_threads =
                query_threads.map_err(io_error("starting threads for", &self.directory))?;
            // An engine is started only once.
            let _ = self.query_threads.set(query_threads);
        }
        Ok(())
    }

    fn parse_policy(&self) -> Result<Policy, SeriesError> {
        let config = &self.config;
        let keep_ms = config.retention.duration().as_millis() as i64;
        let bytes_max = config.size_max.bytes();
        parse_policy(
            &config.keep,
            &config.coarsen,
            (keep_ms > 0).then_some(keep_ms),
            (bytes_max > 0).then_some(bytes_max),
        )
        .map(|policy| Policy { settle_ms: config.settle.duration().as_millis() as i64, ..policy })
        .map_err(|(what, reason)| SeriesError::Invalid { what, reason })
    }

    fn open_catalog(&self) -> Result<Catalog<Directory>, SeriesError> {
        let path = self.directory.join("blocks");
        let disk = Directory::open(&path).map_err(io_error("opening", &path))?;
        let cache = Arc::new(BlockCache::with_metrics(
            self.config.block_cache.bytes(),
            self.metrics.cache.clone(),
        ));
        let catalog = Catalog::open(disk, cache)?;
        for set_aside in catalog.quarantined() {
            tracing::error!(?set_aside, "a block of series is damaged and was set aside");
        }
        Ok(catalog)
    }

    /// How many shards there are: as many as when the data directory was made.
    fn shard_count(&self) -> Result<usize, SeriesError> {
        let configured = self.config.shards;
        parts::load_or_create_count(&self.directory, "shards", configured).map_err(|error| {
            match error {
                PartsError::Invalid(reason) => {
                    SeriesError::Invalid { what: "series.shards", reason }
                }
                PartsError::Io { doing, path, source } => io_error(doing, &path)(source),
            }
        })
    }

    fn open_shard(
        &self,
        number: usize,
        count: usize,
        known_log: KnownLog,
    ) -> Result<(Shard<FileLog>, ShardHandle), SeriesError> {
        let config = &self.config;
        let directory: PathBuf = self.directory.join(format!("{number:03}"));
        let log_directory = directory.join("log");
        known_log.check_directory(&log_directory).map_err(SeriesError::Log)?;
        durable::create_directory(&directory).map_err(io_error("making", &directory))?;
        parts::claim_place(&directory, &format!("series/{number:03}"))
            .map_err(io_error("reading", &directory))?;
        let checkpoints = Directory::open(&directory).map_err(io_error("opening", &directory))?;
        let checkpoint = Checkpoint::read(&checkpoints)?;
        let log_config = known_log.apply_to(LogConfig {
            durability: config.durability.with_interval(config.sync_interval.duration()),
            segment_bytes: config.segment_size.bytes(),
            ..LogConfig::default()
        });
        let log_config =
            LogConfig { must_exist: log_config.must_exist || checkpoint.is_some(), ..log_config };
        let disk = Directory::open(&log_directory).map_err(io_error("opening", &log_directory))?;
        let (log, recovery) =
            FileLog::open_with(disk, log_config, Seq::FIRST, self.entropy.clone())?;
        if let Some(torn) = &recovery.torn {
            tracing::warn!(
                shard = number,
                ?torn,
                "the log ends with an incomplete record, which is cut off"
            );
        }
        let shared = Arc::new(self.new_shard_shared(number, count));
        let mut core = Core::new(shared, self.series_keys.clone());
        let flush_watermark = checkpoint
            .as_ref()
            .map_or(FlushWatermark::EMPTY, |checkpoint| checkpoint.flush_watermark);
        if let Some(checkpoint) = checkpoint {
            restore(checkpoint, &mut core);
        }
        replay(&log, flush_watermark, &mut core)?;
        let handle = ShardHandle {
            shared: core.shared.clone(),
            disk: checkpoints,
            flush_watermark,
            flush_schedule: FlushSchedule::new(
                self.now_ms(),
                config.settle.duration().as_millis() as i64,
            ),
            retry_at: None,
        };
        Ok((Shard::new(core, log, self.metrics.clone()), handle))
    }
}
