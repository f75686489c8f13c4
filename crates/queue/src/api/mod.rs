//! The engine's handle and its operations: what the doors call.

pub mod attachments;
pub mod callbacks;
pub(crate) mod chain;
pub mod claim;
pub(crate) mod destination;
pub mod feed;
pub mod in_flight;
pub(crate) mod name;
pub mod outbox;
pub mod produce;
pub mod queues;
pub mod reports;
pub mod schedules;
pub(crate) mod session;
pub(crate) mod share;
pub mod sink;
pub(crate) mod submit;
pub mod summary;
mod sweep;
pub mod tasks;
pub mod watch;
pub mod work;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use egret_base::lifecycle::hide_directory;
use egret_base::{Clock, Condition, Entropy, TenantShare};
use egret_log::Refused;
use egret_outgoing::Destinations;
use prometheus_client::registry::Registry;

use crate::config::QueueConfig;
use crate::error::QueueError;
use crate::metrics::Metrics;
use crate::model::{QueueSettings, SHARD_BITS};
use crate::worker::limits::Limits;
use crate::worker::partition::Shared;
use crate::worker::precedence::SharedRanks;
use crate::worker::shelf::Shelf;
use crate::worker::turn::Turn;
use in_flight::InFlight;
use session::WorkSession;
use share::TaskShares;
use submit::{Answer, Submission};

/// What the engine stands on.
pub struct Options {
    /// Its settings.
    pub config: QueueConfig,
    /// Where its files are.
    pub directory: PathBuf,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
    pub entropy: Arc<dyn Entropy>,
    /// Where callbacks may go; everywhere with `queue.callback_private`.
    pub destinations: Destinations,
}

/// The queue engine. Cheap to clone.
#[derive(Clone)]
pub struct Queues {
    pub(crate) inner: Arc<Inner>,
}

/// A queue as the doors know it.
pub struct QueueHandle {
    /// Its id.
    pub id: u32,
    /// Whose it is.
    pub tenant: Box<str>,
    /// The same as a number, for as long as this Egret runs.
    pub(crate) tenant_number: u32,
    /// Its name.
    pub name: Box<str>,
    settings: RwLock<Arc<QueueSettings>>,
    deleted: AtomicBool,
    /// Whether it may have tasks of several priorities.
    has_priorities: AtomicBool,
    /// Who works on it, and some who did.
    workers: Mutex<Vec<Weak<WorkSession>>>,
}

impl QueueHandle {
    pub(crate) fn new(id: u32, tenant: &str, name: &str, settings: QueueSettings) -> Self {
        Self {
            id,
            tenant: tenant.into(),
            tenant_number: tenant_number(tenant),
            name: name.into(),
            settings: RwLock::new(Arc::new(settings)),
            deleted: AtomicBool::new(false),
            has_priorities: AtomicBool::new(false),
            workers: Mutex::default(),
        }
    }

    /// Whether it is no queue any more: whoever keeps it asks for it by its name again.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Whether it may have tasks of several priorities.
    pub(crate) fn has_priorities(&self) -> bool {
        self.has_priorities.load(Ordering::Relaxed)
    }

    /// A task of another priority than the usual one may be in it.
    pub(crate) fn note_priority(&self) {
        // Read first: a line of memory that nothing changes is shared by all cores.
        if !self.has_priorities() {
            self.has_priorities.store(true, Ordering::Relaxed);
        }
    }

    /// Somebody works on it, who is told when it is deleted.
    pub(crate) fn note_worker(&self, session: &Arc<WorkSession>) {
        let mut workers = lock(&self.workers);
        if workers.len() == workers.capacity() {
            workers.retain(|worker| worker.strong_count() > 0);
        }
        workers.push(Arc::downgrade(session));
    }

    /// It is no queue any more; those who work on it are told.
    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        for session in lock(&self.workers).iter().filter_map(Weak::upgrade) {
            session.sink.ended(QueueError::QueueNotFound {
                name: self.name.to_string(),
            });
        }
    }

    /// What it does.
    pub fn settings(&self) -> Arc<QueueSettings> {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_settings(&self, settings: QueueSettings) {
        let mut known = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Arc::new(settings);
    }
}

/// Queues by tenant, then by name.
pub(crate) type Directory = HashMap<Box<str>, HashMap<Box<str>, Arc<QueueHandle>>>;

pub(crate) struct Inner {
    pub config: QueueConfig,
    pub directory: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Where callbacks may go.
    pub destinations: Destinations,
    /// Known since the start.
    pub partitions: Arc<OnceLock<Vec<Arc<Shared>>>>,
    pub metrics: Arc<Metrics>,
    /// Limits that hold over all partitions.
    pub limits: Arc<Limits>,
    /// Ranks of the next tasks of queues with several priorities.
    pub ranks: Arc<SharedRanks>,
    pub threads: Mutex<Vec<JoinHandle<()>>>,
    pub queues: RwLock<Directory>,
    /// Which partition has a schedule, by tenant and name.
    pub schedules: Mutex<schedules::Places>,
    /// The task that sends callbacks.
    pub callbacks: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// Their key cannot be read, or was lost and made anew.
    pub callback_key_lost: Condition,
    /// Held while the key of callbacks is read, or made.
    pub callback_key_access: Mutex<()>,
    /// Where attachments lie.
    pub shelf: Arc<Shelf>,
    /// The task that deletes them.
    pub shelf_upkeep: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// One queue is made at a time.
    pub making: Arc<tokio::sync::Mutex<()>>,
    pub next_queue: AtomicU64,
    /// Spreads tasks without a key.
    pub spread: AtomicU64,
    /// What a partition takes in of tasks.
    pub task_shares: OnceLock<TaskShares>,
    /// What calls of each tenant have in flight.
    pub in_flight: InFlight,
    pub stopping: AtomicBool,
}

impl Queues {
    /// An engine that is not started yet.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let shelf_share = TenantShare::new(
            (
                "queue.attachments_bytes_total_max",
                options.config.attachments_bytes_total_max.bytes(),
            ),
            (
                "queue.tenant_attachments_bytes_max",
                options.config.tenant_attachments_bytes_max.bytes(),
            ),
        );
        let shelf = Arc::new(Shelf::new(&options.directory, shelf_share));
        let destinations = if options.config.callback_private {
            Destinations::everything()
        } else {
            options.destinations
        };
        let ranks = SharedRanks::new(options.config.priority_wait_max.0);
        let in_flight = InFlight::new(options.clock.clone());
        Self {
            inner: Arc::new(Inner {
                config: options.config,
                directory: options.directory,
                clock: options.clock,
                entropy: options.entropy,
                destinations,
                partitions: Arc::default(),
                limits: Arc::default(),
                ranks: Arc::new(ranks),
                metrics: Arc::new(Metrics::register(registry, shelf.clone())),
                threads: Mutex::default(),
                queues: RwLock::default(),
                schedules: Mutex::default(),
                callbacks: Mutex::default(),
                callback_key_lost: Condition::new("queue_callback_key_lost", "callback.key"),
                callback_key_access: Mutex::default(),
                shelf,
                shelf_upkeep: Mutex::default(),
                making: Arc::default(),
                next_queue: AtomicU64::new(1),
                spread: AtomicU64::new(0),
                task_shares: OnceLock::new(),
                in_flight,
                stopping: AtomicBool::new(false),
            }),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &QueueConfig {
        &self.inner.config
    }
}

impl Inner {
    pub fn partitions(&self) -> Result<&[Arc<Shared>], QueueError> {
        let known = self.partitions.get();
        known.map(Vec::as_slice).ok_or(QueueError::Stopping)
    }

    /// The partitions that take something in.
    ///
    /// # Errors
    /// Why there is none.
    pub fn running(&self) -> Result<Vec<usize>, QueueError> {
        let partitions = self.partitions()?;
        let running = (0..partitions.len()).filter(|at| !partitions[*at].inbox.is_closed());
        let running: Vec<usize> = running.collect();
        match running.is_empty() {
            true => Err(self.why_ended(0)),
            false => Ok(running),
        }
    }

    /// The partitions that have failed while others go on.
    pub fn failed(&self) -> Vec<usize> {
        let partitions = self.partitions().unwrap_or_default();
        let failed = (0..partitions.len()).filter(|at| partitions[*at].failure.get().is_some());
        failed.collect()
    }

    /// Insists that every partition runs: a change of queues is made in all of them or in none.
    pub fn require_all(&self) -> Result<(), QueueError> {
        match self.failed().first() {
            Some(partition) => Err(self.why_ended(*partition)),
            None => Ok(()),
        }
    }

    /// Which partition has a shard.
    pub fn partition_of(&self, shard: u16) -> Result<usize, QueueError> {
        let count = self.partitions()?.len();
        Ok((usize::from(shard) * count) >> SHARD_BITS)
    }

    /// Hands something to a partition.
    pub fn submit(&self, partition: usize, submission: Submission) -> Result<(), QueueError> {
        let shared = &self.partitions()?[partition];
        let (tenant, bytes) = (submission.tenant(), submission.held_bytes());
        shared.shares.take(tenant, bytes)?;
        let pushed = shared.inbox.push(submission, bytes);
        pushed.map_err(|refused| {
            shared.shares.give_back(tenant, bytes);
            match refused {
                Refused::Full(_, limit) => QueueError::Limit(limit),
                Refused::Closed(_) => self.why_ended(partition),
            }
        })
    }

    /// Tells a partition something that it must hear of, whatever waits for it.
    pub fn tell(&self, partition: usize, submission: Submission) -> Result<(), QueueError> {
        let pushed = self.partitions()?[partition].inbox.push_always(submission);
        pushed.map_err(|_| self.why_ended(partition))
    }

    /// Why a partition takes nothing in.
    fn why_ended(&self, partition: usize) -> QueueError {
        let partitions = self.partitions.get();
        let failure = partitions.and_then(|all| all[partition].failure.get());
        match failure {
            Some(failure) if failure.failed_partition().is_some() => failure.clone(),
            Some(error) => self.unusable(partition, error),
            None => QueueError::Stopping,
        }
    }

    /// What callers and operators read of a partition that an error keeps from working.
    pub fn unusable(&self, partition: usize, error: &QueueError) -> QueueError {
        let reason = egret_base::error::chain(error);
        let data_dir = self.directory.parent().unwrap_or(&self.directory);
        QueueError::PartitionUnusable {
            partition,
            reason: hide_directory(&reason, data_dir),
        }
    }

    /// Has something done in a partition's turn; returns when that is committed.
    pub async fn ask<R: Send + 'static>(
        &self,
        partition: usize,
        ask: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> Result<R, QueueError> {
        let (tell, told) = tokio::sync::oneshot::channel();
        let ask = Box::new(move |turn: &mut Turn<'_>| -> Answer {
            let result = ask(turn);
            Box::new(move |committed: Result<(), QueueError>| {
                // Whoever asked may have gone away.
                let _ = tell.send(committed.map(|()| result));
            })
        });
        self.submit(partition, Submission::Ask(ask))?;
        told.await
            .unwrap_or_else(|_| Err(self.why_ended(partition)))
    }
}

/// Goes on with a change that has several steps even if whoever asked for it goes away.
pub(crate) async fn unbroken<T: Send + 'static>(
    steps: impl Future<Output = Result<T, QueueError>> + Send + 'static,
) -> Result<T, QueueError> {
    match tokio::spawn(steps).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(QueueError::Stopping),
    }
}

/// A number for a tenant, that is not 0. Two tenants with the same would share their turns, no more.
pub(crate) fn tenant_number(tenant: &str) -> u32 {
    crc32c::crc32c(tenant.as_bytes()).max(1)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
