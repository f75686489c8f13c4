//! The engine itself: its parts, which operations of `api` and threads of `worker` share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Instant;

use egret_base::sync::{lock, read_lock};
use egret_base::{Clock, Entropy};
use egret_blocks::catalog::Catalog;
use egret_log::Directory;
use egret_metrics_model::TimeMs;
use egret_metrics_wire::remote_write_v2::{KeyMemory, SymbolMemory};
use egret_metrics_wire::snappy::Snappy;
use tokio::sync::Semaphore;

use crate::config::SeriesConfig;
use crate::core::metadata::MetadataStore;
use crate::core::series_keys::SeriesKeyTable;
use crate::error::SeriesError;
use crate::metrics::{Component, Metrics};
use crate::store::ha_tracker::HaTracker;
use crate::worker::open_repaired::RepairedShard;
use crate::worker::query_threads::QueryThreads;
use crate::worker::shard::ShardShared;
use crate::worker::upkeep::{BlockMaintenance, Job};

pub(crate) struct EngineInner {
    pub config: SeriesConfig,
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub metrics: Arc<Metrics>,
    pub series_keys: Arc<RwLock<SeriesKeyTable>>,
    /// Known since the start.
    pub shards: OnceLock<Vec<Arc<ShardShared>>>,
    /// Shards that were repaired at the start.
    pub repaired_shards: Mutex<Vec<RepairedShard>>,
    /// All blocks; known since the start.
    pub catalog: OnceLock<Arc<Catalog<Directory>>>,
    /// Elected replicas; set at the start if the labels of replicas are configured.
    pub ha_tracker: OnceLock<HaTracker>,
    /// How long samples are kept at most, in milliseconds; known since the start.
    pub retention_max_ms: OnceLock<i64>,
    /// Jobs for the maintenance thread; `None` before it starts and while it stops.
    pub job_sender: Mutex<Option<Sender<Job>>>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    pub stopping: AtomicBool,
    /// Whether the upkeep has ended by a panic.
    pub upkeep_failed: AtomicBool,
    /// Metadata of metrics, as senders said it.
    pub metadata: RwLock<MetadataStore>,
    /// How many queries may be answered at a time.
    pub query_permits: Arc<Semaphore>,
    /// Threads that help to answer queries; set at the start.
    pub query_threads: OnceLock<QueryThreads>,
    /// Buffers of earlier requests, for reuse.
    pub buffers: Mutex<Vec<Buffers>>,
}

/// Memory that a request needs while it is read.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub snappy: Snappy,
    pub symbols: SymbolMemory,
    pub key: KeyMemory,
}

impl EngineInner {
    pub(crate) fn now_ms(&self) -> TimeMs {
        self.clock.now().as_micros().div_euclid(1_000)
    }

    pub(crate) fn shards(&self) -> Result<&[Arc<ShardShared>], SeriesError> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(SeriesError::Stopping);
        }
        let known = self.shards.get();
        known.map(Vec::as_slice).ok_or(SeriesError::Stopping)
    }

    /// Locks the table of known series for reading.
    pub(crate) fn read_series_keys(&self) -> RwLockReadGuard<'_, SeriesKeyTable> {
        match self.series_keys.try_read() {
            Ok(keys) => keys,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let began = Instant::now();
                let known = read_lock(&self.series_keys);
                self.metrics.observe_duration(Component::Lock, began.elapsed());
                known
            }
        }
    }

    pub(crate) fn catalog(&self) -> Result<&Arc<Catalog<Directory>>, SeriesError> {
        self.catalog.get().ok_or(SeriesError::Stopping)
    }

    /// Runs a closure on the maintenance thread, between its other jobs.
    ///
    /// # Errors
    /// Those of the job, [`SeriesError::Stopping`] and [`SeriesError::UpkeepFailed`].
    pub(crate) async fn run_job<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut BlockMaintenance) -> Result<R, SeriesError> + Send + 'static,
    ) -> Result<R, SeriesError> {
        let (result_sender, result_receiver) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(move |upkeep: &mut BlockMaintenance| {
            // The caller may have gone away.
            let _ = result_sender.send(job(upkeep));
        });
        let job_sender = lock(&self.job_sender).clone().ok_or(SeriesError::Stopping)?;
        let end_error = || {
            if self.stopping.load(Ordering::Acquire) {
                SeriesError::Stopping
            } else {
                SeriesError::UpkeepFailed
            }
        };
        job_sender.send(job).map_err(|_| end_error())?;
        result_receiver.await.map_err(|_| end_error())?
    }

    /// The error that ended a shard, or that the engine stops.
    pub(crate) fn shard_end_error(&self, shard: &ShardShared) -> SeriesError {
        shard.failure.get().cloned().unwrap_or(SeriesError::Stopping)
    }
}
