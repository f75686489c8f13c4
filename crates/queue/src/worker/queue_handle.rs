//! Queues as callers hold them: settings, and the sessions of their workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock, Weak};

use egret_base::sync::{lock, read_lock, write_lock};

use super::session::WorkSession;
use crate::error::QueueError;
use crate::model::QueueSettings;

/// A queue as the frontends use it.
pub struct QueueHandle {
    /// Id of the queue.
    pub id: u32,
    /// Tenant that owns the queue.
    pub tenant: Box<str>,
    /// Hash of the tenant, for as long as this Egret runs.
    pub(crate) tenant_number: u32,
    /// Name of the queue, unique in its tenant.
    pub name: Box<str>,
    settings: RwLock<Arc<QueueSettings>>,
    deleted: AtomicBool,
    /// Whether it may have tasks of several priorities.
    has_priorities: AtomicBool,
    /// Sessions of workers of this queue; some may have ended.
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

    /// Whether the queue has been deleted: a holder of this handle looks it up by name again.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Whether it may have tasks of several priorities.
    pub(crate) fn has_priorities(&self) -> bool {
        self.has_priorities.load(Ordering::Relaxed)
    }

    /// Marks that the queue may have a task of another than the default priority.
    pub(crate) fn mark_prioritized(&self) {
        // Load before store: a cache line that is not written stays shared between cores.
        if !self.has_priorities() {
            self.has_priorities.store(true, Ordering::Relaxed);
        }
    }

    /// Adds a worker, to be notified when the queue is deleted.
    pub(crate) fn add_worker(&self, session: &Arc<WorkSession>) {
        let mut workers = lock(&self.workers);
        if workers.len() == workers.capacity() {
            workers.retain(|worker| worker.strong_count() > 0);
        }
        workers.push(Arc::downgrade(session));
    }

    /// Marks the queue as deleted and notifies its workers.
    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
        for session in lock(&self.workers).iter().filter_map(Weak::upgrade) {
            session.sink.notify_end(QueueError::QueueNotFound { name: self.name.to_string() });
        }
    }

    /// Current settings of the queue.
    pub fn settings(&self) -> Arc<QueueSettings> {
        read_lock(&self.settings).clone()
    }

    pub(crate) fn set_settings(&self, settings: QueueSettings) {
        let mut current = write_lock(&self.settings);
        *current = Arc::new(settings);
    }
}

/// Queues by tenant, then by name.
pub(crate) type Directory = HashMap<Box<str>, HashMap<Box<str>, Arc<QueueHandle>>>;

/// A non-zero number for a tenant. Two tenants with the same number only share their turns.
pub(crate) fn tenant_number(tenant: &str) -> u32 {
    crc32c::crc32c(tenant.as_bytes()).max(1)
}
