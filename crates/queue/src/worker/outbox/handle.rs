//! The handle of the outboxes of a server, and the state that their readers share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egret_base::condition::ConditionSet;
use egret_base::sync::read_lock;
use egret_postgres::Databases;
use egret_postgres::database_watch::DatabaseWatch;
use egret_postgres::lock_owner::LockOwner;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::metrics::OutboxMetrics;
use super::reader_task::ReaderTask;
use crate::store::outbox::SizeLimits;
use crate::worker::queues::Queues;

/// Notified before each step that changes something outside the process, so that tests can end it
/// there.
pub trait OutboxSteps: Send + Sync {
    /// The step comes next: `enqueue`, `delete` or `reject`.
    fn before(&self, step: &'static str);
}

/// Ignores all steps of the reader.
struct NoopSteps;

impl OutboxSteps for NoopSteps {
    fn before(&self, _: &'static str) {}
}

/// The outboxes of a server. Cheap to clone.
#[derive(Clone)]
pub struct Outbox {
    pub(crate) inner: Arc<OutboxState>,
}

pub(crate) struct OutboxState {
    pub queues: Queues,
    pub databases: Databases,
    /// Owner of the readers' locks.
    pub lock_owner: LockOwner,
    pub metrics: OutboxMetrics,
    pub steps: Arc<dyn OutboxSteps>,
    /// The reader of each database.
    pub readers: Mutex<BTreeMap<String, ReaderTask>>,
    /// Finds databases that have an outbox.
    pub watch: DatabaseWatch,
    /// Notified when an outbox may have been installed or removed.
    pub outboxes_changed: Notify,
    pub stopping: watch::Sender<bool>,
    pub watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Outbox {
    /// The outboxes in these databases, whose rows become tasks of `queues`.
    pub fn new(queues: Queues, databases: Databases, registry: &mut Registry) -> Self {
        Self::with_steps(queues, databases, registry, Arc::new(NoopSteps))
    }

    /// As [`Outbox::new`], with an observer of every step.
    pub fn with_steps(
        queues: Queues,
        databases: Databases,
        registry: &mut Registry,
        steps: Arc<dyn OutboxSteps>,
    ) -> Self {
        let faults = ConditionSet::new("outbox_databases_unreachable");
        let watch = DatabaseWatch::new(databases.clone(), faults, "outboxes");
        Self {
            inner: Arc::new(OutboxState {
                queues,
                databases,
                lock_owner: LockOwner::unique(),
                metrics: OutboxMetrics::new(registry),
                steps,
                readers: Mutex::default(),
                watch,
                outboxes_changed: Notify::new(),
                stopping: watch::Sender::new(false),
                watcher: Mutex::default(),
            }),
        }
    }

    /// The names of the existing queues of the outbox tenant.
    pub(crate) fn queue_names(&self) -> Vec<String> {
        let queues = &self.inner.queues.inner;
        let queues_by_tenant = read_lock(&queues.queues);
        let tenant_queues = queues_by_tenant.get(queues.config.outbox_tenant.as_str());
        tenant_queues.map_or_else(Vec::new, |own| own.keys().map(ToString::to_string).collect())
    }

    /// The number of these queues.
    pub(crate) fn queue_count(&self) -> usize {
        let queues = &self.inner.queues.inner;
        let queues_by_tenant = read_lock(&queues.queues);
        let tenant_queues = queues_by_tenant.get(queues.config.outbox_tenant.as_str());
        tenant_queues.map_or(0, |own| own.len())
    }

    pub(crate) fn size_limits(&self) -> SizeLimits {
        let config = self.inner.queues.config();
        SizeLimits {
            payload_bytes_max: config.payload_bytes_max.bytes(),
            chain_bytes_max: config.chain_bytes_max.bytes(),
        }
    }
}
