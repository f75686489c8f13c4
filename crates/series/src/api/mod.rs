//! The engine's handle and its operations: what the doors call.

pub mod export;
pub mod gather;
pub mod import;
pub mod look;
pub mod parse;
pub mod query;
pub mod source;
pub mod summary;
pub mod write;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use egret_base::{Clock, Entropy};
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::config::SeriesConfig;
use crate::core::known::Known;
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::model::TimeMs;
use crate::worker::shard::{Core, Shared, Submission};
use write::Buffers;

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
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    pub stopping: AtomicBool,
    /// How many queries may be answered at a time.
    pub queries: Arc<Semaphore>,
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
                threads: Mutex::default(),
                stopping: AtomicBool::new(false),
                queries: Arc::new(Semaphore::new(queries)),
                buffers: Mutex::default(),
                config: options.config,
            }),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &SeriesConfig {
        &self.inner.config
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

    /// Why a shard takes nothing in.
    pub fn why_ended(&self, shard: &Shared) -> SeriesError {
        shard
            .failure
            .get()
            .cloned()
            .unwrap_or(SeriesError::Stopping)
    }

    /// Has something done by a shard's thread, between two appends.
    pub async fn ask<R: Send + 'static>(
        &self,
        shard: &Shared,
        ask: impl FnOnce(&mut Core) -> R + Send + 'static,
    ) -> Result<R, SeriesError> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let ask = Submission::Ask(Box::new(move |core: &mut Core| {
            // Whoever asked may have gone away.
            let _ = tell.send(ask(core));
        }));
        let pushed = shard.inbox.push_always(ask);
        pushed.map_err(|_| self.why_ended(shard))?;
        told.await.map_err(|_| self.why_ended(shard))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
