//! The handle of the engine, and its dependencies.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use egret_base::{Clock, Condition, Entropy, Limit, TenantShare};
use egret_outgoing::Destinations;
use prometheus_client::registry::Registry;

use super::attachment_store::AttachmentStore;
use super::engine_state::EngineState;
use super::in_flight::{InFlight, TenantInFlight};
use super::precedence::SharedRanks;
use super::queue_handle::tenant_number;
use crate::config::QueueConfig;
use crate::metrics::Metrics;

/// Dependencies of the engine.
pub struct Options {
    /// Settings of the queue engine.
    pub config: QueueConfig,
    /// Directory of its files.
    pub directory: PathBuf,
    /// Source of time for all partitions.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness for all partitions.
    pub entropy: Arc<dyn Entropy>,
    /// Allowed destinations of callbacks; ignored with `queue.callback_private`.
    pub destinations: Destinations,
}

/// The queue engine. Cheap to clone.
#[derive(Clone)]
pub struct Queues {
    pub(crate) inner: Arc<EngineState>,
}

impl Queues {
    /// An engine that is not started yet.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let attachment_share = TenantShare::new(
            Limit::new(
                "queue.attachments_bytes_total_max",
                options.config.attachments_bytes_total_max.bytes(),
            ),
            Limit::new(
                "queue.tenant_attachments_bytes_max",
                options.config.tenant_attachments_bytes_max.bytes(),
            ),
        );
        let attachments = Arc::new(AttachmentStore::new(&options.directory, attachment_share));
        let destinations = if options.config.callback_private {
            Destinations::allow_all()
        } else {
            options.destinations
        };
        let ranks = SharedRanks::new(options.config.priority_wait_max.0);
        let in_flight = InFlight::new(options.clock.clone());
        Self {
            inner: Arc::new(EngineState {
                config: options.config,
                directory: options.directory,
                clock: options.clock,
                entropy: options.entropy,
                destinations,
                partitions: Arc::default(),
                limits: Arc::default(),
                ranks: Arc::new(ranks),
                metrics: Arc::new(Metrics::register(registry, attachments.clone())),
                threads: Mutex::default(),
                queues: RwLock::default(),
                schedules: Mutex::default(),
                callbacks: Mutex::default(),
                callback_key_lost: Condition::new("queue_callback_key_lost", "callback.key"),
                callback_key_access: Mutex::default(),
                attachments,
                attachment_upkeep: Mutex::default(),
                definition_lock: Arc::default(),
                next_queue: AtomicU64::new(1),
                next_partition: AtomicU64::new(0),
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

    /// The items of a tenant in flight.
    pub fn in_flight(&self, tenant: &str) -> Arc<TenantInFlight> {
        self.inner.in_flight.for_tenant(tenant_number(tenant))
    }
}
