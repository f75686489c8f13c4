//! Sessions through the PostgreSQL proxy in the audit log: opened, ended, refused.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use egret_base::sync::lock;
use egret_base::{Clock, Entropy};

use super::AuditLog;
use super::entry::{AuditEntry, OBJECT_BYTES_MAX};
use super::quota::Bucket;

/// The operation of a session that was opened or refused.
const OPEN_OPERATION: &str = "openBranchSession";

/// The operation of a session that has ended.
const END_OPERATION: &str = "endBranchSession";

/// A session as its client asks for it.
#[derive(Clone, Debug)]
pub(crate) struct SessionAttempt {
    /// Address of the client's end of the connection.
    pub(crate) address: IpAddr,
    /// The tenant and the branch, as the client names them.
    pub(crate) tenant: String,
    pub(crate) branch: String,
    pub(crate) database: String,
    pub(crate) role: String,
    /// Whether the client has proved that it knows the password.
    pub(crate) is_authenticated: bool,
}

/// Why a session was refused.
pub(crate) struct SessionRefusal {
    /// The equivalent HTTP status.
    pub(crate) status: u16,
    /// The reason, as metrics have it.
    pub(crate) reason: &'static str,
}

/// Records sessions in the audit log.
pub(crate) struct SessionAudit {
    log: Arc<AuditLog>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// A session that is open; its end is recorded when this is dropped.
pub(crate) struct SessionRecord {
    log: Arc<AuditLog>,
    clock: Arc<dyn Clock>,
    entry: AuditEntry,
    opened_at: Instant,
    end_reason: &'static str,
}

impl SessionAudit {
    pub(crate) fn new(
        log: Arc<AuditLog>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self { log, clock, entropy }
    }

    /// Records that a session was opened; `None` where it is only counted.
    pub(crate) fn record_opening(&self, attempt: &SessionAttempt) -> Option<SessionRecord> {
        let entry = self.new_entry(attempt, 200);
        self.log.submit_session_tallies(Some(entry.at));
        if !lock(&self.log.session_quota).try_count(&entry) {
            return None;
        }
        self.log.submit(entry.clone());
        Some(SessionRecord {
            log: self.log.clone(),
            clock: self.clock.clone(),
            entry,
            opened_at: Instant::now(),
            end_reason: "stopping",
        })
    }

    /// Records that a session was refused.
    pub(crate) fn record_refusal(&self, attempt: &SessionAttempt, refusal: SessionRefusal) {
        let mut entry = self.new_entry(attempt, refusal.status);
        entry.reason = Some(refusal.reason.to_owned());
        let branch = format!("{}.{}", attempt.branch, attempt.tenant);
        let is_within_quota = if attempt.is_authenticated {
            let buckets = [Bucket::Branch(&branch), Bucket::Tenant(&attempt.tenant)];
            self.log.count_failed(&entry, &buckets)
        } else {
            self.log.count_failed(&entry, &[Bucket::WithoutPassword])
        };
        if is_within_quota {
            self.log.submit(entry);
        }
    }

    fn new_entry(&self, attempt: &SessionAttempt, status: u16) -> AuditEntry {
        let at = self.clock.now();
        AuditEntry {
            at,
            request_id: egret_base::id::v7(at, self.entropy.ten_bytes()).to_string(),
            token: None,
            token_name: None,
            tenant: Some(shorten(&attempt.tenant)),
            address: Some(attempt.address.to_canonical().to_string()),
            operation: OPEN_OPERATION.to_owned(),
            object: Some(shorten(&attempt.branch)),
            status,
            suppressed: 0,
            database: Some(shorten(&attempt.database)),
            role: Some(shorten(&attempt.role)),
            reason: None,
            duration_ms: None,
        }
    }
}

impl SessionRecord {
    /// Notes how the session ended.
    pub(crate) fn set_end_reason(&mut self, reason: &'static str) {
        self.end_reason = reason;
    }
}

impl Drop for SessionRecord {
    fn drop(&mut self) {
        let elapsed = self.opened_at.elapsed().as_millis();
        self.log.submit(AuditEntry {
            at: self.clock.now(),
            operation: END_OPERATION.to_owned(),
            suppressed: 0,
            reason: Some(self.end_reason.to_owned()),
            duration_ms: Some(u64::try_from(elapsed).unwrap_or(u64::MAX)),
            ..self.entry.clone()
        });
    }
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(OBJECT_BYTES_MAX)].to_owned()
}
