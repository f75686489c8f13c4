//! The audit log: changes with their token and client address, refused attempts, and sessions
//! through the PostgreSQL proxy.
//!
//! One JSON line for each entry in `audit/audit.jsonl` below the data directory, mode 0600, rotated
//! by size. Entries are handed to a thread of their own: no request waits for the disk, and a full
//! disk stops none. The first one is written at once, those that follow it up to `GATHER_TIME`
//! later. Entries hold names and ids, never bodies, queries or secrets.

mod entry;
mod file;
mod lines;
mod quota;
mod reads;
mod session_quota;
mod sessions;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_base::Timestamp;
use egret_base::condition::Condition;
use egret_base::sync::lock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::config::ServerConfig;
use crate::error::{RequestError, ServerError};
use crate::metrics::Metrics;
pub(crate) use entry::{AuditEntry, AuditFilter, OBJECT_BYTES_MAX};
use file::{AuditFiles, AuditOptions};
use quota::{Bucket, FailedQuota};
use reads::AuditReads;
pub(crate) use reads::AuditTurn;
use session_quota::SessionQuota;
pub(crate) use sessions::{SessionAttempt, SessionAudit, SessionRecord, SessionRefusal};

/// Entries that may wait to be written; more are counted and dropped.
const QUEUED_ENTRIES_MAX: usize = 4_096;

/// How long the writer lets entries gather after it has written some: a burst of requests, which it
/// would otherwise interrupt at each, wakes it once.
const GATHER_TIME: Duration = Duration::from_millis(2);

/// The longest time that a query waits for entries before it to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

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
    lost_entries: Counter,
    failed_quota: Mutex<FailedQuota>,
    session_quota: Mutex<SessionQuota>,
    /// Failed requests that were only counted since the last entry.
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
        let log = started
            .expect("registering runs its closure")
            .map_err(|source| ServerError::AuditLog { source })?;
        Ok(Some(Arc::new(log)))
    }

    fn start(options: AuditOptions, registry: &mut Registry) -> std::io::Result<Self> {
        let lost_entries = Counter::default();
        registry.register(
            "egret_audit_entries_lost",
            "Entries of the audit log that could not be written",
            lost_entries.clone(),
        );
        let (sender, receiver) = sync_channel(QUEUED_ENTRIES_MAX);
        let (files, lost_in_writer) = (AuditFiles::new(options.clone()), lost_entries.clone());
        let writer = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || run_writer(&receiver, files, &lost_in_writer))?;
        Ok(Self {
            options,
            sender: Some(sender),
            writer: Some(writer),
            reads: AuditReads::new(),
            lost_entries,
            failed_quota: Mutex::default(),
            session_quota: Mutex::default(),
            suppressed: AtomicU64::new(0),
        })
    }

    /// Hands the entry of a request to the writer; never waits.
    pub(crate) fn record(&self, entry: AuditEntry) {
        let is_within_quota = match (&entry.token, &entry.tenant) {
            (Some(token), Some(tenant)) => {
                self.count_failed(&entry, &[Bucket::Token(token), Bucket::Tenant(tenant)])
            }
            _ => self.count_failed(&entry, &[Bucket::WithoutToken]),
        };
        if is_within_quota {
            self.submit(entry);
        }
    }

    /// Counts an entry without success in these buckets. Returns whether it is still to be written.
    fn count_failed(&self, entry: &AuditEntry, buckets: &[Bucket<'_>]) -> bool {
        if entry.status < 400 || lock(&self.failed_quota).try_count(buckets, entry.at) {
            return true;
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Sends the writer the entries of sessions that were only counted, for minutes that are over.
    fn submit_session_tallies(&self, now: Option<Timestamp>) {
        let entries = lock(&self.session_quota).take_tallies(now);
        for entry in entries {
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
            self.lost_entries.inc();
        }
    }

    /// Waits until a query of a tenant may [read](Self::read).
    ///
    /// # Errors
    /// [`RequestError::QuotaExceeded`] when the tenant has as many queries as it may.
    pub(crate) async fn acquire_turn(&self, tenant: &str) -> Result<AuditTurn, RequestError> {
        self.reads.acquire_turn(tenant).await
    }

    /// The newest entries that a filter takes, newest first; blocks on the disk. The caller keeps
    /// its turn until this returns, even if its client has gone meanwhile.
    pub(crate) fn read(
        &self,
        _turn: &AuditTurn,
        filter: &AuditFilter,
    ) -> std::io::Result<Vec<AuditEntry>> {
        self.submit_session_tallies(None);
        if let Some(sender) = &self.sender {
            let (done_sender, done_receiver) = sync_channel(1);
            if sender.try_send(Message::Flush(done_sender)).is_ok() {
                // Entries that are not written in time are not in the answer.
                let _ = done_receiver.recv_timeout(FLUSH_TIMEOUT);
            }
        }
        AuditFiles::new(self.options.clone()).read(filter)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        self.submit_session_tallies(None);
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // A panic has been reported by the thread itself.
            let _ = writer.join();
        }
    }
}

fn run_writer(receiver: &Receiver<Message>, mut files: AuditFiles, lost_entries: &Counter) {
    let unwritable = Condition::new("audit_log_unwritable", "audit log");
    while let Ok(first) = receiver.recv() {
        for message in std::iter::once(first).chain(receiver.try_iter()) {
            let entry = match message {
                Message::Entry(entry) => entry,
                Message::Flush(done_sender) => {
                    // The query may have given up.
                    let _ = done_sender.send(());
                    continue;
                }
            };
            match files.append(&entry) {
                Ok(()) => unwritable.recover("writing the audit log works again"),
                Err(error) => {
                    lost_entries.inc();
                    let message = "cannot write the audit log; requests are served without entries";
                    unwritable.fail(&error, message);
                }
            }
        }
        std::thread::sleep(GATHER_TIME);
    }
}

#[cfg(test)]
mod tests;
