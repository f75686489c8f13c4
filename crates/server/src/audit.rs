//! The audit log: who changed what, from where and with which token, and what was refused.
//!
//! One JSON line for each entry in `audit/audit.jsonl` below the data directory, mode 0600, rotated
//! by size. Entries are handed to a thread of their own: no request waits for the disk, and a full
//! disk stops none. Entries hold names and ids, never bodies, queries or secrets.

mod file;
mod lines;
mod reads;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use egret_base::Timestamp;
use egret_base::condition::Condition;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::RequestError;
use file::AuditFiles;
use reads::AuditReads;
pub(crate) use reads::AuditTurn;

/// Entries that may wait to be written; more are counted and dropped.
const WAITING_MAX: usize = 4_096;

/// Requests without success (status 400 and above) that are written in a minute for one token, and
/// for all callers without a valid one together. The others are counted in the next entry, so that
/// a flood of them, which costs its sender nothing, does not rotate everything else away.
const FAILED_PER_MINUTE_MAX: u64 = 60;

/// Tokens whose requests without success are counted one by one in a minute; those of further
/// tokens are counted together.
const FAILED_TOKENS_MAX: usize = 4_096;

/// Bytes of an object's name that are kept.
pub(crate) const OBJECT_BYTES_MAX: usize = 256;

/// The longest time that a query waits for entries before it to be written.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);

/// One change, or one refused attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was answered, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The request's id.
    pub request_id: String,
    /// The id of the token; null where there was no valid one.
    pub token: Option<String>,
    /// The token's name.
    pub token_name: Option<String>,
    /// The token's tenant.
    pub tenant: Option<String>,
    /// The address that the connection came from.
    pub address: Option<String>,
    /// The operation, as the OpenAPI document or the gRPC contract names it.
    #[schema(example = "deleteQueue")]
    pub operation: String,
    /// What it was about: the names in its path.
    #[schema(example = "orders")]
    pub object: Option<String>,
    /// The HTTP status of the answer; 499 where the client left before it was complete.
    #[schema(example = 204)]
    pub status: u16,
    /// Requests without success before this one that were counted only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
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
pub struct AuditOptions {
    /// The directory of its files.
    pub directory: PathBuf,
    /// Size at which a file is rotated, in bytes.
    pub file_bytes_max: u64,
    /// Files that are kept, the one that is written to included.
    pub files_max: u32,
}

enum Message {
    Entry(Box<AuditEntry>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// The audit log and the thread that writes it.
pub(crate) struct AuditLog {
    options: AuditOptions,
    /// `None` once the log is being dropped.
    sender: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<()>>,
    reads: AuditReads,
    lost: Counter,
    failed: Mutex<FailedQuota>,
    /// Requests without success that were counted only, since the last entry.
    suppressed: AtomicU64,
}

/// Requests without success of the current minute, by token; those without a valid token under an
/// empty id.
#[derive(Default)]
struct FailedQuota {
    minute: i64,
    by_token: HashMap<String, u64>,
}

impl FailedQuota {
    /// Counts a request. Returns whether it is still to be written.
    fn take(&mut self, token: Option<&str>, now: Timestamp) -> bool {
        let minute = now.as_micros().div_euclid(60_000_000);
        if minute != self.minute {
            self.minute = minute;
            self.by_token.clear();
        }
        let token = token.unwrap_or_default();
        let is_known = self.by_token.contains_key(token);
        let key = if is_known || self.by_token.len() < FAILED_TOKENS_MAX {
            token
        } else {
            ""
        };
        let count = self.by_token.entry(key.to_owned()).or_default();
        *count += 1;
        *count <= FAILED_PER_MINUTE_MAX
    }
}

impl AuditLog {
    pub(crate) fn start(options: AuditOptions, registry: &mut Registry) -> std::io::Result<Self> {
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
            suppressed: AtomicU64::new(0),
        })
    }

    /// Hands an entry to the writer; never waits.
    pub(crate) fn record(&self, mut entry: AuditEntry) {
        if entry.status >= 400 {
            let mut quota = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if !quota.take(entry.token.as_deref(), entry.at) {
                self.suppressed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        entry.suppressed = self.suppressed.swap(0, Ordering::Relaxed);
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
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // A panic has been reported by the thread itself.
            let _ = writer.join();
        }
    }
}

fn write(receiver: &Receiver<Message>, mut files: AuditFiles, lost: &Counter) {
    let unwritable = Condition::new("audit_log_unwritable", "audit log");
    for message in receiver {
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
}

#[cfg(test)]
mod tests;
