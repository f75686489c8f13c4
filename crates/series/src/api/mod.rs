//! The engine's handle and its operations: what the doors call.

mod budget;
pub mod cardinality;
pub(crate) mod damage;
pub(crate) mod describe;
pub(crate) mod elections;
pub mod export;
pub mod gather;
pub mod import;
pub mod look;
pub mod monitor;
mod pieces;
pub mod query;
mod remote_write;
pub(crate) mod source;
pub mod summary;
mod threads;
mod within;
pub mod write;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError,
};
use std::thread::JoinHandle;
use std::time::Instant;

use egret_base::{Clock, Entropy};
use egret_log::Directory;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::config::SeriesConfig;
use crate::core::known::Known;
use crate::core::metadata::MetadataStore;
use crate::core::promql::LabelMatcher;
use crate::core::record::Deletion;
use crate::error::SeriesError;
use crate::metrics::{Component, Metrics};
use crate::model::TimeMs;
use crate::store::catalog::Catalog;
use crate::worker::SnapshotOf;
use crate::worker::shard::Shared;
use crate::worker::upkeep::{Job, Upkeep};
use elections::Elections;
use remote_write::Buffers;
pub(crate) use threads::Threads;

/// What the engine stands on.
pub struct Options {
    /// Its settings.
    pub config: SeriesConfig,
    /// Where its files are.
    pub directory: PathBuf,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
    pub entropy: Arc<dyn Entropy>,
}

/// The series engine. Cheap to clone.
#[derive(Clone)]
pub struct Series {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub config: SeriesConfig,
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub metrics: Arc<Metrics>,
    pub known: Arc<RwLock<Known>>,
    /// Known since the start.
    pub shards: OnceLock<Vec<Arc<Shared>>>,
    /// All blocks; known since the start.
    pub catalog: OnceLock<Arc<Catalog<Directory>>>,
    /// Which replicas are listened to; known since the start, where there are any.
    pub elections: OnceLock<Elections>,
    /// How long samples are kept at most, in milliseconds; known since the start.
    pub keep_max_ms: OnceLock<i64>,
    /// What the upkeep is asked to do; none when it has not begun, or ends.
    pub jobs: Mutex<Option<Sender<Job>>>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    pub stopping: AtomicBool,
    /// Whether the upkeep has ended by a panic.
    pub upkeep_failed: AtomicBool,
    /// What is said of metrics.
    pub metadata: RwLock<MetadataStore>,
    /// How many queries may be answered at a time.
    pub queries: Arc<Semaphore>,
    /// Who helps to answer them; known since the start.
    pub query_threads: OnceLock<Threads>,
    /// Memory of requests, to be used again.
    pub buffers: Mutex<Vec<Buffers>>,
}

impl Series {
    /// An engine that is not started yet.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let mut seed = [0; 8];
        options.entropy.fill(&mut seed);
        let queries = options.config.queries_max.max(1) as usize;
        Self {
            inner: Arc::new(Inner {
                directory: options.directory,
                clock: options.clock,
                entropy: options.entropy,
                metrics: Arc::new(Metrics::register(registry)),
                known: Arc::new(RwLock::new(Known::new(u64::from_le_bytes(seed)))),
                shards: OnceLock::new(),
                catalog: OnceLock::new(),
                elections: OnceLock::new(),
                keep_max_ms: OnceLock::new(),
                jobs: Mutex::default(),
                threads: Mutex::default(),
                stopping: AtomicBool::new(false),
                upkeep_failed: AtomicBool::new(false),
                metadata: RwLock::new(MetadataStore::new(
                    options.config.metadata_bytes_max.bytes(),
                )),
                queries: Arc::new(Semaphore::new(queries)),
                query_threads: OnceLock::new(),
                buffers: Mutex::default(),
                config: options.config,
            }),
        }
    }

    /// Refuses settings with which the engine cannot run, before anything is started.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`].
    pub fn check_settings(&self) -> Result<(), SeriesError> {
        self.inner.check_settings()
    }

    /// The settings in force.
    pub fn config(&self) -> &SeriesConfig {
        &self.inner.config
    }

    /// Writes everything that is only in the log and in memory to blocks.
    ///
    /// # Errors
    /// [`SeriesError::Block`] and others of writing.
    pub async fn flush(&self) -> Result<(), SeriesError> {
        let flush = |upkeep: &mut Upkeep| upkeep.flush_all();
        self.inner.job(flush).await
    }

    /// Does now what is done with blocks in its own time: samples of windows that are over are written to them, what is
    /// no longer kept is deleted, old samples are thinned out, small blocks are merged.
    ///
    /// # Errors
    /// [`SeriesError::Block`] and others of writing.
    pub async fn tend(&self) -> Result<(), SeriesError> {
        self.inner.job(Upkeep::tend).await
    }

    /// Deletes the samples, from first to last time, of series that one of the selectors takes. Those that come later
    /// are not concerned, whatever their time. The space is given back when blocks are merged.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`] without a selector, and others of writing.
    pub async fn delete(
        &self,
        selectors: Vec<Vec<LabelMatcher>>,
        (start, end): (TimeMs, TimeMs),
    ) -> Result<(), SeriesError> {
        if selectors.is_empty() {
            return Err(SeriesError::Invalid {
                what: "match[]",
                reason: "name the series to delete".to_owned(),
            });
        }
        for matchers in selectors {
            let mut id = [0; 8];
            self.inner.entropy.fill(&mut id);
            let deletion = Deletion {
                id: u64::from_le_bytes(id),
                matchers: matchers
                    .iter()
                    .map(|matcher| matcher.matcher().clone())
                    .collect(),
                start,
                end,
            };
            let delete = |upkeep: &mut Upkeep| upkeep.delete(deletion);
            self.inner.job(delete).await?;
        }
        Ok(())
    }

    /// Gives back the space of samples that were deleted.
    ///
    /// # Errors
    /// [`SeriesError::Block`] and others of writing.
    pub async fn clean_tombstones(&self) -> Result<(), SeriesError> {
        self.inner.job(Upkeep::clean).await
    }

    /// Writes a copy to a new directory below `snapshots` in that of the engine, and returns its name: the time and a
    /// random number. An engine that is given it as its directory begins with what it has.
    ///
    /// # Errors
    /// [`SeriesError::Io`] and others of writing.
    pub async fn snapshot(&self, of: SnapshotOf) -> Result<String, SeriesError> {
        let mut random = [0; 8];
        self.inner.entropy.fill(&mut random);
        let now = self.inner.clock.now().to_string();
        let seconds = now.split('.').next().unwrap_or_default();
        let seconds = seconds.replace(['-', ':'], "");
        let name = format!("{seconds}Z-{:016x}", u64::from_le_bytes(random));
        let to = self.inner.directory.join("snapshots").join(&name);
        let write = move |upkeep: &mut Upkeep| upkeep.snapshot(&to, of);
        self.inner.job(write).await?;
        Ok(name)
    }

    /// The present time, in milliseconds.
    pub fn now_ms(&self) -> TimeMs {
        self.inner.now_ms()
    }
}

impl Inner {
    pub fn now_ms(&self) -> TimeMs {
        self.clock.now().as_micros().div_euclid(1_000)
    }

    pub fn shards(&self) -> Result<&[Arc<Shared>], SeriesError> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(SeriesError::Stopping);
        }
        let known = self.shards.get();
        known.map(Vec::as_slice).ok_or(SeriesError::Stopping)
    }

    /// Which series are known.
    pub fn known(&self) -> RwLockReadGuard<'_, Known> {
        match self.known.try_read() {
            Ok(known) => known,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let began = Instant::now();
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                self.metrics.took(Component::Lock, began.elapsed());
                known
            }
        }
    }

    pub fn catalog(&self) -> Result<&Arc<Catalog<Directory>>, SeriesError> {
        self.catalog.get().ok_or(SeriesError::Stopping)
    }

    /// Has something done by the thread of the upkeep, when nothing else is going on there.
    ///
    /// # Errors
    /// Those of the job, [`SeriesError::Stopping`] and [`SeriesError::UpkeepFailed`].
    pub async fn job<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Upkeep) -> Result<R, SeriesError> + Send + 'static,
    ) -> Result<R, SeriesError> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(move |upkeep: &mut Upkeep| {
            // Whoever asked may have gone away.
            let _ = tell.send(job(upkeep));
        });
        let jobs = lock(&self.jobs).clone().ok_or(SeriesError::Stopping)?;
        let why_ended = || match self.stopping.load(Ordering::Acquire) {
            true => SeriesError::Stopping,
            // Nothing else ends it.
            false => SeriesError::UpkeepFailed,
        };
        jobs.send(job).map_err(|_| why_ended())?;
        told.await.map_err(|_| why_ended())?
    }

    /// Why a shard takes nothing in.
    pub fn why_ended(&self, shard: &Shared) -> SeriesError {
        shard
            .failure
            .get()
            .cloned()
            .unwrap_or(SeriesError::Stopping)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
