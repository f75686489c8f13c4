//! The engine's handle and its state, which its operations (`api`) and its loops (`worker`) share.

mod branch_slot;
mod client_profile;
mod copy_reservations;
mod faults;
mod pending_undo;
mod pool;
mod rehearsal;
mod shared_work;
mod tenant_turns;
pub(crate) mod warm_session;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use egret_base::settings::ByteSize;
use egret_base::sync::{lock, read_lock};
use egret_base::{Clock, Condition, Entropy, Timestamp};
use egret_postgres::EmbeddedServer;
use egret_postgres::isolation::Isolation;
use egret_postgres::owner::RunAsUser;
use egret_postgres::provision::Binaries;
use egret_postgres::tuning;
use egret_postgres::wire::scram::Verifier;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, Semaphore, watch};

use crate::config::BranchesConfig;
use crate::core::tenant_disk::TenantDisks;
use crate::error::BranchesError;
use crate::metrics::Metrics;
use crate::model::{Branch, BranchId, BranchName, TemplateId};
use crate::store::files::Paths;
use crate::store::registry::Registry as Rows;
use crate::store::secret::Secret;
use crate::store::volume::MountedVolume;

pub(crate) use branch_slot::BranchSlot;
pub(crate) use client_profile::Profile;
pub(crate) use copy_reservations::{
    CopyReservation, CopyReservations, ReservationNumber, WrittenBytes,
};
use faults::Faults;
pub(crate) use pending_undo::{HeldTemplate, PendingUndo};
pub(crate) use pool::Pool;
pub(crate) use rehearsal::Rehearsal;
pub(crate) use shared_work::{Turn, Work};
pub(crate) use tenant_turns::{TenantDiskUsage, TenantTurns};
pub(crate) use warm_session::{Purpose, WarmSession};

/// Egret's name for the embedded server as a source.
pub(crate) const SOURCE: &str = "main";

/// Templates whose files are deleted at the same time: each takes a thread for as long as that
/// lasts.
pub const DELETIONS_MAX: usize = 4;

/// Hook that is called before each step that changes something outside the process; a crash test
/// ends the process there.
pub trait CrashPoints: Send + Sync + 'static {
    /// `step` is about to be taken, e.g. `create.clone`.
    fn before(&self, step: &'static str);
}

struct NoCrashPoints;

impl CrashPoints for NoCrashPoints {
    fn before(&self, _: &'static str) {}
}

/// Everything that the engine needs to start.
pub struct Options {
    /// Settings of section `branches`.
    pub config: BranchesConfig,
    /// The volume in use.
    pub mounted: MountedVolume,
    /// Root of Egret's data directory.
    pub data_dir: PathBuf,
    /// Parent of the socket directories; a short path, as socket addresses are limited.
    pub run_dir: PathBuf,
    /// The server that branches are made of; started before this engine.
    pub source: Arc<EmbeddedServer>,
    /// Source of the current time.
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
    pub(crate) machine_memory: ByteSize,
    pub(crate) data_dir: PathBuf,
    pub(crate) paths: Paths,
    pub(crate) mounted: RwLock<MountedVolume>,
    pub(crate) source: Arc<EmbeddedServer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) crash_points: Arc<dyn CrashPoints>,
    pub(crate) metrics: Metrics,
    pub(crate) state: OnceLock<EngineState>,
    pub(crate) stopping: AtomicBool,
    /// Becomes `true` when Egret stops; tasks that wait for something else watch it.
    pub(crate) stop_signal: watch::Sender<bool>,
    pub(crate) slots: Mutex<HashMap<BranchId, Arc<BranchSlot>>>,
    pub(crate) verifiers: Mutex<HashMap<BranchId, Arc<Verifier>>>,
    /// Held for reading while a branch takes a template, for writing while one is removed.
    pub(crate) template_removal_lock: tokio::sync::RwLock<()>,
    /// Held while the manifest of a branch is written.
    pub(crate) manifest_lock: Mutex<()>,
    /// Templates that a reset may give back to its branch.
    pub(crate) held_templates: Arc<Mutex<Vec<TemplateId>>>,
    /// Held while a branch that is about to be made is counted and recorded.
    pub(crate) intent_lock: Mutex<()>,
    /// Room on the volume that copies under way take.
    pub(crate) copy_reservations: Mutex<CopyReservations>,
    /// Held while a reset gives a branch another parent.
    pub(crate) lineage_lock: Mutex<()>,
    /// Held for reading while a template is built, for writing while none may be.
    pub(crate) build_lock: tokio::sync::RwLock<()>,
    /// Held while a template of the source is built, so that one is built at a time.
    pub(crate) head_build_lock: tokio::sync::Mutex<()>,
    /// Permits for building templates of branches, by tenant.
    pub(crate) tenant_build_permits: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Permits: as many idle branches are suspended at the same time.
    pub(crate) suspend_permits: Semaphore,
    /// Permits: the files of as many templates are deleted at the same time.
    pub(crate) template_deletion_permits: Semaphore,
    /// Held by the task that fills or empties the pools.
    pub(crate) fill_lock: tokio::sync::Mutex<()>,
    /// Permits: as many queries through the API may begin at the same time.
    pub(crate) query_permits: Semaphore,
    pub(crate) wakeup: Notify,
    /// Processes of all branches that the kernel had killed for memory when they were last counted.
    pub(crate) memory_kills: AtomicU64,
    /// Bytes that the branches of each tenant take on the volume.
    pub(crate) tenant_disks: Mutex<TenantDisks>,
    /// Bytes that had been written to the volume at the last check of the tenants; `u64::MAX`
    /// before the first.
    pub(crate) tenants_checked_at: AtomicU64,
    /// Locks for measuring a tenant and deleting its destroyed branches, by tenant.
    pub(crate) tenant_turns: Mutex<HashMap<String, Arc<TenantTurns>>>,
    /// Held while tenants that may have grown are measured.
    pub(crate) tenant_watch_lock: Arc<tokio::sync::Mutex<()>>,
    pub(crate) pool: Pool,
    pub(crate) tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
    pub(crate) faults: Faults,
    /// The key that passwords are derived from was lost and replaced by a new one.
    pub(crate) key_lost: Condition,
}

/// State of the engine that exists once it has started.
pub(crate) struct EngineState {
    pub(crate) registry: Rows,
    pub(crate) binaries: Binaries,
    pub(crate) owner: RunAsUser,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) secret: Secret,
    pub(crate) boot_id: String,
}

impl Branches {
    /// An engine that is not started yet; its metrics go into `registry`.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        Self::with_crash_points(options, registry, Arc::new(NoCrashPoints))
    }

    /// An engine that calls `crash_points` before each step that changes something outside.
    pub fn with_crash_points(
        options: Options,
        registry: &mut Registry,
        crash_points: Arc<dyn CrashPoints>,
    ) -> Self {
        let metrics = Metrics::register(registry);
        let query_permits = match options.config.query_concurrency {
            0 => std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2),
            configured => configured as usize,
        };
        Self {
            inner: Arc::new(Inner {
                paths: Paths { volume: options.mounted.root.clone(), run: options.run_dir },
                machine_memory: tuning::detect_machine(&options.data_dir).memory,
                data_dir: options.data_dir,
                mounted: RwLock::new(options.mounted),
                source: options.source,
                clock: options.clock,
                entropy: options.entropy,
                crash_points,
                metrics,
                state: OnceLock::new(),
                stopping: AtomicBool::new(false),
                stop_signal: watch::Sender::new(false),
                slots: Mutex::default(),
                verifiers: Mutex::default(),
                template_removal_lock: tokio::sync::RwLock::default(),
                manifest_lock: Mutex::default(),
                held_templates: Arc::default(),
                intent_lock: Mutex::default(),
                copy_reservations: Mutex::default(),
                lineage_lock: Mutex::default(),
                build_lock: tokio::sync::RwLock::default(),
                head_build_lock: tokio::sync::Mutex::default(),
                tenant_build_permits: Mutex::default(),
                suspend_permits: Semaphore::new(options.config.start_concurrency()),
                template_deletion_permits: Semaphore::new(DELETIONS_MAX),
                fill_lock: tokio::sync::Mutex::default(),
                query_permits: Semaphore::new(query_permits),
                config: options.config,
                wakeup: Notify::new(),
                memory_kills: AtomicU64::new(0),
                faults: Faults::new(),
                key_lost: Condition::new("branches_key_lost", "branch.key"),
                tenant_disks: Mutex::default(),
                tenants_checked_at: AtomicU64::new(u64::MAX),
                tenant_turns: Mutex::default(),
                tenant_watch_lock: Arc::default(),
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
    /// The state since the start; [`BranchesError::Stopping`] before the start and while Egret
    /// stops.
    pub(crate) fn state(&self) -> Result<&EngineState, BranchesError> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(BranchesError::Stopping);
        }
        self.state.get().ok_or(BranchesError::Stopping)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn mounted(&self) -> MountedVolume {
        read_lock(&self.mounted).clone()
    }

    /// Completes when Egret stops.
    pub(crate) async fn await_stop(&self) {
        let mut ended = self.stop_signal.subscribe();
        // The sender lives as long as the engine.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// A branch's slot, if it has one.
    pub(crate) fn existing_slot(&self, id: BranchId) -> Option<Arc<BranchSlot>> {
        lock(&self.slots).get(&id).cloned()
    }

    /// A branch's slot, made where it is missing.
    pub(crate) fn slot(&self, id: BranchId) -> Arc<BranchSlot> {
        let now = self.now();
        lock(&self.slots).entry(id).or_insert_with(|| Arc::new(BranchSlot::new(now))).clone()
    }

    /// The living branch of this name, or an error that names it.
    pub(crate) fn find_branch(
        &self,
        tenant: &str,
        name: &BranchName,
    ) -> Result<Branch, BranchesError> {
        let found = self.state()?.registry.branch_named(tenant, name);
        found.ok_or_else(|| BranchesError::NotFound { name: name.to_string() })
    }
}
