//! The engine's handle and its operations: what the doors call.

mod append_chunks;
mod budget;
pub mod cardinality;
pub(crate) mod corruption;
mod embedded;
pub mod export;
pub mod import;
pub(crate) mod ingest_batch;
pub mod label_queries;
pub(crate) mod metadata;
pub mod monitor;
pub mod query;
mod remote_write;
mod service;
pub(crate) mod source;
pub mod summary;
pub mod write;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use egret_base::{Clock, Entropy};
use egret_metrics_model::{LabelMatcher, TimeMs, TimeSpan};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::config::SeriesConfig;
use crate::core::metadata::MetadataStore;
use crate::core::record::Deletion;
use crate::core::series_keys::SeriesKeyTable;
use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::worker::SnapshotOf;
use crate::worker::upkeep::BlockMaintenance;

/// What an engine is made of: settings, directory, clock and entropy.
pub struct EngineOptions {
    /// Settings of the engine.
    pub config: SeriesConfig,
    /// Directory of its files.
    pub directory: PathBuf,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Source of random numbers.
    pub entropy: Arc<dyn Entropy>,
}

/// The series engine. Cheap to clone.
#[derive(Clone)]
pub struct Series {
    pub(crate) inner: Arc<EngineInner>,
}

impl Series {
    /// An engine that is not started yet.
    pub fn new(options: EngineOptions, registry: &mut Registry) -> Self {
        let mut seed = [0; 8];
        options.entropy.fill(&mut seed);
        let queries = options.config.queries_max.max(1) as usize;
        Self {
            inner: Arc::new(EngineInner {
                directory: options.directory,
                clock: options.clock,
                entropy: options.entropy,
                metrics: Arc::new(Metrics::register(registry)),
                series_keys: Arc::new(RwLock::new(SeriesKeyTable::new(u64::from_le_bytes(seed)))),
                shards: OnceLock::new(),
                catalog: OnceLock::new(),
                ha_tracker: OnceLock::new(),
                retention_max_ms: OnceLock::new(),
                job_sender: Mutex::default(),
                threads: Mutex::default(),
                stopping: AtomicBool::new(false),
                upkeep_failed: AtomicBool::new(false),
                metadata: RwLock::new(MetadataStore::new(
                    options.config.metadata_bytes_max.bytes(),
                )),
                query_permits: Arc::new(Semaphore::new(queries)),
                query_threads: OnceLock::new(),
                buffers: Mutex::default(),
                repaired_shards: Mutex::default(),
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
        let flush = |upkeep: &mut BlockMaintenance| upkeep.flush_all();
        self.inner.run_job(flush).await
    }

    /// Does now what is done with blocks in its own time: samples of windows that are over are
    /// written to them, what is no longer kept is deleted, old samples are thinned out, small
    /// blocks are merged.
    ///
    /// # Errors
    /// [`SeriesError::Block`] and others of writing.
    pub async fn compact(&self) -> Result<(), SeriesError> {
        self.inner.run_job(BlockMaintenance::compact).await
    }

    /// Deletes the samples, from first to last time, of series that one of the selectors takes.
    /// Those that come later are not concerned, whatever their time. The space is given back when
    /// blocks are merged.
    ///
    /// # Errors
    /// [`SeriesError::Invalid`] without a selector, and others of writing.
    pub async fn delete(
        &self,
        selectors: Vec<Vec<LabelMatcher>>,
        span: TimeSpan,
    ) -> Result<(), SeriesError> {
        if selectors.is_empty() {
            return Err(SeriesError::Invalid {
                what: "match[]",
                reason: "give a selector of the series to delete".to_owned(),
            });
        }
        for matchers in selectors {
            let mut id = [0; 8];
            self.inner.entropy.fill(&mut id);
            let deletion = Deletion {
                id: u64::from_le_bytes(id),
                matchers: matchers.iter().map(|matcher| matcher.matcher().clone()).collect(),
                start: span.start,
                end: span.end,
            };
            let delete = |upkeep: &mut BlockMaintenance| upkeep.delete(deletion);
            self.inner.run_job(delete).await?;
        }
        Ok(())
    }

    /// Gives back the space of samples that were deleted.
    ///
    /// # Errors
    /// [`SeriesError::Block`] and others of writing.
    pub async fn clean_tombstones(&self) -> Result<(), SeriesError> {
        self.inner.run_job(BlockMaintenance::clean_tombstones).await
    }

    /// Writes a copy to a new directory below `snapshots` in that of the engine, and returns its
    /// name: the time and a random number. An engine that is given it as its directory begins with
    /// what it has.
    ///
    /// # Errors
    /// [`SeriesError::Io`] and others of writing.
    pub async fn snapshot(&self, contents: SnapshotOf) -> Result<String, SeriesError> {
        let mut random = [0; 8];
        self.inner.entropy.fill(&mut random);
        let now = self.inner.clock.now().to_string();
        let seconds = now.split('.').next().unwrap_or_default();
        let seconds = seconds.replace(['-', ':'], "");
        let name = format!("{seconds}Z-{:016x}", u64::from_le_bytes(random));
        let path = self.inner.directory.join("snapshots").join(&name);
        let write = move |upkeep: &mut BlockMaintenance| upkeep.snapshot(&path, contents);
        self.inner.run_job(write).await?;
        Ok(name)
    }

    /// The present time, in milliseconds.
    pub fn now_ms(&self) -> TimeMs {
        self.inner.now_ms()
    }
}
