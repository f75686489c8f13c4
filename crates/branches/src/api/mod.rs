//! The engine's handle and its operations: what the doors call.
//!
//! Every operation that touches a branch's files or postmaster holds that branch's slot, so that
//! they follow one another; reading does not.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Instant;

use egret_base::settings::Size;
use egret_base::{Clock, Condition, Entropy, Timestamp};
use egret_postgres::EmbeddedServer;
use egret_postgres::isolation::Isolation;
use egret_postgres::owner::Owner;
use egret_postgres::postmaster::Postmaster;
use egret_postgres::provision::Binaries;
use egret_postgres::supervise::Restarts;
use egret_postgres::tuning;
use egret_postgres::wire::scram::Verifier;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, Semaphore, watch};

use crate::config::BranchesConfig;
use crate::core::tenant_disk::TenantDisks;
use crate::error::BranchesError;
use crate::metrics::Metrics;
use crate::model::{Branch, BranchId, BranchName, Phase, TemplateId};
use crate::store::files::Paths;
use crate::store::registry::Registry as Rows;
use crate::store::secret::Secret;
use crate::store::volume::Mounted;
use faults::Faults;
use pool::Pool;
use reset::PendingUndo;
use resident::Resident;
use tenant_disk::TenantTurns;

mod bounded;
pub mod change;
pub mod create;
mod faults;
mod fill;
mod memory;
pub mod pool;
mod postmaster;
mod probe;
mod promised_room;
pub(crate) mod recover;
mod rehearsal;
mod reset;
pub(crate) mod resident;
mod role_passwords;
mod room;
pub mod session;
mod shared_work;
pub mod template;
mod tenant_disk;
pub mod verify;
pub mod view;
mod volume;

/// Egret's name for the embedded server as a source.
pub const SOURCE: &str = "main";

/// Told of each step that changes something outside the process, before it is taken; a crash test
/// ends the process there.
pub trait Steps: Send + Sync + 'static {
    /// `step` is about to be taken, e.g. `create.clone`.
    fn before(&self, step: &'static str);
}

struct NoSteps;

impl Steps for NoSteps {
    fn before(&self, _: &'static str) {}
}

/// What the engine is made from.
pub struct Options {
    /// Settings.
    pub config: BranchesConfig,
    /// The volume in use.
    pub mounted: Mounted,
    /// Egret's data directory.
    pub data_dir: PathBuf,
    /// Where socket directories go; short.
    pub run_dir: PathBuf,
    /// The server that branches are made of; started before this engine.
    pub source: Arc<EmbeddedServer>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness, fit for secrets.
    pub entropy: Arc<dyn Entropy>,
}

/// The branches engine. Cheap to clone; every clone is the same engine.
#[derive(Clone)]
pub struct Branches {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: BranchesConfig,
    pub(crate) machine_memory: Size,
    pub(crate) data_dir: PathBuf,
    pub(crate) paths: Paths,
    pub(crate) mounted: RwLock<Mounted>,
    pub(crate) source: Arc<EmbeddedServer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) steps: Arc<dyn Steps>,
    pub(crate) metrics: Metrics,
    pub(crate) started: OnceLock<Started>,
    pub(crate) stopping: AtomicBool,
    /// Becomes `true` when Egret stops, for those who wait for something else meanwhile.
    pub(crate) ended: watch::Sender<bool>,
    pub(crate) slots: Mutex<HashMap<BranchId, Arc<Slot>>>,
    pub(crate) verifiers: Mutex<HashMap<BranchId, Arc<Verifier>>>,
    /// Held for reading while a branch takes a template, for writing while one is removed.
    pub(crate) templates_gate: tokio::sync::RwLock<()>,
    /// Held while the manifest of a branch is written.
    manifests: Mutex<()>,
    /// Templates that a reset may give back to its branch.
    pub(crate) held_templates: Mutex<Vec<TemplateId>>,
    /// Held while a branch that is about to be made is counted and recorded.
    intents: Mutex<()>,
    /// Bytes of the volume that copies under way take.
    promised: Mutex<u64>,
    /// Held while a reset gives a branch another parent.
    pub(crate) lineage: Mutex<()>,
    /// Held for reading while a template is built, for writing while none may be.
    pub(crate) builds: tokio::sync::RwLock<()>,
    /// One template of the source is built at a time.
    pub(crate) head_build: tokio::sync::Mutex<()>,
    /// What builds of templates of branches take one of, by tenant.
    pub(crate) tenant_builds: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// One for each idle branch that is suspended at the same time.
    pub(crate) suspensions: Semaphore,
    /// One for each template whose files are deleted at the same time.
    pub(crate) template_deletions: Semaphore,
    /// Held by whoever fills or empties the pools.
    pub(crate) filling: tokio::sync::Mutex<()>,
    /// One for each query through the API that may begin.
    pub(crate) turns: Semaphore,
    pub(crate) due: Notify,
    /// Processes of all branches that the kernel had killed for memory when they were last counted.
    pub(crate) memory_kills: AtomicU64,
    /// What the branches of each tenant take of the volume.
    tenant_disks: Mutex<TenantDisks>,
    /// What had been written to the volume when tenants were looked at last; `u64::MAX` before that.
    tenants_looked_at: AtomicU64,
    /// What is measured and deleted for one tenant at a time, by tenant.
    tenant_turns: Mutex<HashMap<String, Arc<TenantTurns>>>,
    /// Held while tenants that may have grown are measured.
    watching_tenants: Arc<tokio::sync::Mutex<()>>,
    pub(crate) pool: Pool,
    pub(crate) tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    pub(crate) faults: Faults,
    /// What passwords are derived from was lost and made anew.
    pub(crate) key_lost: Condition,
}

/// What is known once the engine has started.
pub(crate) struct Started {
    pub(crate) registry: Rows,
    pub(crate) binaries: Binaries,
    pub(crate) owner: Owner,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) secret: Secret,
    pub(crate) boot_id: String,
}

/// One branch's place in this process.
pub(crate) struct Slot {
    /// Held by whoever changes the branch's files or postmaster.
    pub(crate) lock: tokio::sync::Mutex<()>,
    /// Held while a template of the branch is built.
    pub(crate) build: tokio::sync::Mutex<()>,
    live: Mutex<Option<Arc<Postmaster>>>,
    /// The postmaster of a tombstone, to be stopped when its files are deleted.
    pub(crate) doomed: Mutex<Option<Arc<Postmaster>>>,
    /// Connected sessions that wait for somebody.
    residents: Mutex<Vec<Resident>>,
    /// How often somebody began to work in the branch.
    uses: AtomicU64,
    pub(crate) sessions: AtomicU32,
    /// The database of each of them, where it is known.
    databases: Mutex<Vec<String>>,
    pub(crate) idle_since: Mutex<Option<Timestamp>>,
    /// The ends that nobody asked for.
    pub(crate) restarts: Mutex<Restarts>,
    /// Counts the ends of its postmasters; sessions watch it.
    pub(crate) ends: watch::Sender<u64>,
    /// Processes of its postmaster that the kernel had killed for memory when they were last counted.
    memory_kills: AtomicU64,
    /// What was done to it, and why, that its users did not ask for.
    notice: Mutex<Option<String>>,
    /// A reset that failed and is not undone yet.
    pending_undo: Mutex<Option<PendingUndo>>,
}

impl Slot {
    fn new(now: Timestamp) -> Self {
        Self {
            lock: tokio::sync::Mutex::new(()),
            build: tokio::sync::Mutex::new(()),
            live: Mutex::new(None),
            doomed: Mutex::new(None),
            residents: Mutex::default(),
            uses: AtomicU64::new(0),
            sessions: AtomicU32::new(0),
            databases: Mutex::default(),
            idle_since: Mutex::new(Some(now)),
            restarts: Mutex::default(),
            ends: watch::Sender::new(0),
            memory_kills: AtomicU64::new(0),
            notice: Mutex::default(),
            pending_undo: Mutex::default(),
        }
    }

    /// The running postmaster.
    pub(crate) fn live(&self) -> Option<Arc<Postmaster>> {
        lock(&self.live).clone()
    }

    /// The postmaster, if it has not ended this very moment.
    pub(crate) fn running(&self) -> Option<Arc<Postmaster>> {
        self.live().filter(|postmaster| !postmaster.has_ended())
    }

    pub(crate) fn set_live(&self, postmaster: Arc<Postmaster>) {
        *lock(&self.live) = Some(postmaster);
    }

    /// Keeps what was done to the branch, to be shown with it.
    pub(crate) fn note(&self, notice: String) {
        *lock(&self.notice) = Some(notice);
    }

    pub(crate) fn notice(&self) -> Option<String> {
        lock(&self.notice).clone()
    }

    /// Drops the notice: a user has started the branch again or made it anew.
    pub(crate) fn forget_notice(&self) {
        *lock(&self.notice) = None;
    }

    /// Takes the postmaster out, so that its end is nobody's surprise, and tells its sessions.
    pub(crate) fn take_live(&self) -> Option<Arc<Postmaster>> {
        let taken = lock(&self.live).take();
        if taken.is_some() {
            self.ends.send_modify(|ends| *ends += 1);
        }
        taken
    }

    /// Drops the sessions that wait; their server is gone or about to go.
    pub(crate) fn forget_residents(&self) {
        lock(&self.residents).clear();
    }
}

/// A mutex whose holders leave it sound even when they panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Branches {
    /// An engine that is not started yet; its metrics go into `registry`.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        Self::with_steps(options, registry, Arc::new(NoSteps))
    }

    /// An engine that tells `steps` what it is about to do.
    pub fn with_steps(options: Options, registry: &mut Registry, steps: Arc<dyn Steps>) -> Self {
        let metrics = Metrics::register(registry);
        let turns = match options.config.query_concurrency {
            0 => std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2),
            configured => configured as usize,
        };
        Self {
            inner: Arc::new(Inner {
                paths: Paths {
                    volume: options.mounted.root.clone(),
                    run: options.run_dir,
                },
                machine_memory: tuning::this_machine(&options.data_dir).memory,
                data_dir: options.data_dir,
                mounted: RwLock::new(options.mounted),
                source: options.source,
                clock: options.clock,
                entropy: options.entropy,
                steps,
                metrics,
                started: OnceLock::new(),
                stopping: AtomicBool::new(false),
                ended: watch::Sender::new(false),
                slots: Mutex::default(),
                verifiers: Mutex::default(),
                templates_gate: tokio::sync::RwLock::default(),
                manifests: Mutex::default(),
                held_templates: Mutex::default(),
                intents: Mutex::default(),
                promised: Mutex::default(),
                lineage: Mutex::default(),
                builds: tokio::sync::RwLock::default(),
                head_build: tokio::sync::Mutex::default(),
                tenant_builds: Mutex::default(),
                suspensions: Semaphore::new(options.config.start_concurrency()),
                template_deletions: Semaphore::new(template::DELETIONS_MAX),
                filling: tokio::sync::Mutex::default(),
                turns: Semaphore::new(turns),
                config: options.config,
                due: Notify::new(),
                memory_kills: AtomicU64::new(0),
                faults: Faults::new(),
                key_lost: Condition::new("branches_key_lost", "branch.key"),
                tenant_disks: Mutex::default(),
                tenants_looked_at: AtomicU64::new(u64::MAX),
                tenant_turns: Mutex::default(),
                watching_tenants: Arc::default(),
                pool: Pool::default(),
                tasks: Mutex::default(),
            }),
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &BranchesConfig {
        &self.inner.config
    }
}

impl Inner {
    /// What is known since the start.
    pub(crate) fn started(&self) -> Result<&Started, BranchesError> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(BranchesError::Stopping);
        }
        self.started.get().ok_or(BranchesError::Stopping)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn mounted(&self) -> Mounted {
        self.mounted
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// Completes when Egret stops.
    pub(crate) async fn ending(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as the engine.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// A branch's place, if it has one.
    pub(crate) fn known_slot(&self, id: BranchId) -> Option<Arc<Slot>> {
        lock(&self.slots).get(&id).cloned()
    }

    /// A branch's place, made where it is missing.
    pub(crate) fn slot(&self, id: BranchId) -> Arc<Slot> {
        let now = self.now();
        lock(&self.slots)
            .entry(id)
            .or_insert_with(|| Arc::new(Slot::new(now)))
            .clone()
    }

    /// The living branch of this name, or an error that names it.
    pub(crate) fn find(&self, tenant: &str, name: &BranchName) -> Result<Branch, BranchesError> {
        let found = self.started()?.registry.branch_named(tenant, name);
        found.ok_or_else(|| BranchesError::NotFound {
            name: name.to_string(),
        })
    }
}

/// Measures the parts of an operation one after the other.
pub(crate) struct Stopwatch {
    started: Instant,
    last: Instant,
    phases: Vec<Phase>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            phases: Vec::new(),
        }
    }

    /// Ends the phase that has run since the last call.
    pub(crate) fn phase(&mut self, name: &str) {
        let now = Instant::now();
        self.phases.push(Phase {
            name: name.to_owned(),
            ms: milliseconds(now - self.last),
        });
        self.last = now;
    }

    pub(crate) fn total_ms(&self) -> f64 {
        milliseconds(self.started.elapsed())
    }

    pub(crate) fn phases(&self) -> &[Phase] {
        &self.phases
    }
}

/// Milliseconds to three decimals, as receipts show them.
pub(crate) fn milliseconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
