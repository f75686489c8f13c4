//! The audit log: who changed what, from where and with which token, what was refused, and which
//! sessions were opened through the PostgreSQL proxy.
//!
//! One JSON line for each entry in `audit/audit.jsonl` below the data directory, mode 0600, rotated
//! by size. Entries are handed to a thread of their own: no request waits for the disk, and a full
//! disk stops none. The first one is written at once, those that follow it up to `GATHER_TIME` later.
//! Entries hold names and ids, never bodies, queries or secrets.

mod file;
mod lines;
mod quota;
mod reads;
mod sessions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_base::Timestamp;
use egret_base::condition::Condition;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::ServerConfig;
use crate::error::{RequestError, ServerError};
use crate::metrics::Metrics;
use file::AuditFiles;
use quota::{Bucket, FailedQuota};
use reads::AuditReads;
pub(crate) use reads::AuditTurn;
use sessions::SessionQuota;
pub(crate) use sessions::{SessionAttempt, SessionAudit, SessionRecord, SessionRefusal};

/// Entries that may wait to be written; more are counted and dropped.
const WAITING_MAX: usize = 4_096;

/// Bytes of an object's name that are kept.
pub(crate) const OBJECT_BYTES_MAX: usize = 256;

/// How long the writer lets entries gather after it has written some: a burst of requests, which it would otherwise
/// interrupt at each, wakes it once.
const GATHER_TIME: Duration = Duration::from_millis(2);

/// The longest time that a query waits for entries before it to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// One change, or one refused attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was answered, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The request's id; of a session the same at its opening and at its end.
    pub request_id: String,
    /// The id of the token; null where there was no valid one.
    pub token: Option<String>,
    /// The token's name.
    pub token_name: Option<String>,
    /// The token's tenant; of a session the tenant that its client names.
    pub tenant: Option<String>,
    /// The client's address: that of the connection, or the one that a proxy of
    /// `server.trusted_proxies` names.
    pub address: Option<String>,
    /// The operation, as the OpenAPI document or the gRPC contract names it; of a session through
    /// the PostgreSQL proxy `openBranchSession` or `endBranchSession`.
    #[schema(example = "deleteQueue")]
    pub operation: String,
    /// What it was about: the names in its path; of a session the branch.
    #[schema(example = "orders")]
    pub object: Option<String>,
    /// The HTTP status of the answer; 499 where the client left before it was complete. Of a
    /// session 200, or the status that HTTP has for the reason of its refusal.
    #[schema(example = 204)]
    pub status: u16,
    /// Entries before this one that were counted only: requests without success, or sessions of
    /// the same role, branch and address.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
    /// Of a session: its database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// Of a session: its role, as its client names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Of a session: why it was refused, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the end of a session: how long it lasted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Which entries are asked for; `None` is any.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub(crate) since: Option<Timestamp>,
    pub(crate) token: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) limit: usize,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.since.is_none_or(|since| entry.at >= since)
            && is(&self.token, entry.token.as_deref())
            && is(&self.tenant, entry.tenant.as_deref())
            && is(&self.operation, Some(&entry.operation))
    }
}

/// Where the log is kept, and how much of it.
#[derive(Clone, Debug)]
struct AuditOptions {
    /// The directory of its files.
    directory: PathBuf,
    /// Size at which a file is rotated, in bytes.
    file_bytes_max: u64,
    /// Files that are kept, the one that is written to included.
    files_max: u32,
}

enum Message {
    Entry(Box<AuditEntry>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// The audit log and the thread that writes it.
pub struct AuditLog {
    options: AuditOptions,
    /// `None` once the log is being dropped.
    sender: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<()>>,
    reads: AuditReads,
    lost: Counter,
    failed: Mutex<FailedQuota>,
    sessions: Mutex<SessionQuota>,
    /// Requests without success that were counted only, since the last entry.
    suppressed: AtomicU64,
}

impl AuditLog {
    /// The log in a directory; `None` where the settings say that none is kept.
    ///
    /// # Errors
    /// [`ServerError::AuditLog`] when its thread cannot be started.
    pub fn open(
        config: &ServerConfig,
        directory: PathBuf,
        metrics: &Metrics,
    ) -> Result<Option<Arc<Self>>, ServerError> {
        if !config.audit_log {
            return Ok(None);
        }
        let options = AuditOptions {
            directory,
            file_bytes_max: config.audit_file_bytes_max.bytes(),
            files_max: config.audit_files_max,
        };
        let mut started = None;
        metrics.register(|registry| started = Some(Self::start(options, registry)));
        let log = started.expect("registering runs its closure");
        let log = log.map_err(|source| ServerError::AuditLog { source })?;
        Ok(Some(Arc::new(log)))
    }

    fn start(options: AuditOptions, registry: &mut Registry) -> std::io::Result<Self> {
        let lost = Counter::default();
        registry.register(
            "egret_audit_entries_lost",
            "Entries of the audit log that could not be written",
            lost.clone(),
        );
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let (files, failures) = (AuditFiles::new(options.clone()), lost.clone());
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(&receiver, files, &failures))?;
        Ok(Self {
            options,
            sender: Some(sender),
            writer: Some(writer),
            reads: AuditReads::new(),
            lost,
            failed: Mutex::default(),
            sessions: Mutex::default(),
            suppressed: AtomicU64::new(0),
        })
    }

    /// Hands the entry of a request to the writer; never waits.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let is_written = match (&entry.token, &entry.tenant) {
            (Some(token), Some(tenant)) => {
                self.take_failed(&entry, &[Bucket::Token(token), Bucket::Tenant(tenant)])
            }
            _ => self.take_failed(&entry, &[Bucket::WithoutToken]),
        };
        if is_written {
            self.submit(entry);
        }
    }

    /// Counts an entry without success in these buckets. Returns whether it is still to be written.
    fn take_failed(&self, entry: &AuditEntry, buckets: &[Bucket<'_>]) -> bool {
        if entry.status < 400 || lock(&self.failed).take(buckets, entry.at) {
            return true;
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Hands over the entries of sessions that were counted only, of minutes that are over.
    fn settle_sessions(&self, now: Option<Timestamp>) {
        let counted = lock(&self.sessions).settle(now);
        for entry in counted {
            self.submit(entry);
        }
    }

    fn submit(&self, mut entry: AuditEntry) {
        if entry.suppressed == 0 {
            entry.suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        }
        let Some(sender) = &self.sender else {
            return;
        };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            sender.try_send(Message::Entry(Box::new(entry)))
        {
            self.lost.inc();
        }
    }

    /// Waits until a query of a tenant may [read](Self::read).
    ///
    /// # Errors
    /// [`RequestError::QuotaExceeded`] when the tenant has as many queries as it may.
    pub(crate) async fn enter(&self, tenant: &str) -> Result<AuditTurn, RequestError> {
        self.reads.enter(tenant).await
    }

    /// The newest entries that a filter takes, newest first; blocks on the disk. The turn is the caller's until
    /// then, though nobody may wait for the answer any more.
    pub(crate) fn read(
        &self,
        _turn: &AuditTurn,
        filter: &AuditFilter,
    ) -> std::io::Result<Vec<AuditEntry>> {
        self.settle_sessions(None);
        if let Some(sender) = &self.sender {
            let (done, written) = sync_channel(1);
            if sender.try_send(Message::Flush(done)).is_ok() {
                // Entries that are not written in time are not in the answer.
                let _ = written.recv_timeout(FLUSH_PATIENCE);
            }
        }
        AuditFiles::new(self.options.clone()).read(filter)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.settle_sessions(None);
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // A panic has been reported by the thread itself.
            let _ = writer.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts are changed by single calls, so a panic elsewhere leaves them sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(receiver: &Receiver<Message>, mut files: AuditFiles, lost: &Counter) {
    let unwritable = Condition::new("audit_log_unwritable", "audit log");
    while let Ok(first) = receiver.recv() {
        for message in std::iter::once(first).chain(receiver.try_iter()) {
            let entry = match message {
                Message::Entry(entry) => entry,
                Message::Flush(done) => {
                    // The query may have given up.
                    let _ = done.send(());
                    continue;
                }
            };
            match files.append(&entry) {
                Ok(()) => unwritable.recover("the audit log is written again"),
                Err(error) => {
                    lost.inc();
                    let message = "cannot write the audit log; requests go on without it";
                    unwritable.fail(&error, message);
                }
            }
        }
        std::thread::sleep(GATHER_TIME);
    }
}

#[cfg(test)]
mod tests;
