//! Sessions through the PostgreSQL proxy in the audit log: opened, ended, refused.
//!
//! An application without a pool opens hundreds of sessions in a second. So of one role, branch and
//! address only so many are recorded in a minute, of one tenant a few times as many; of the others
//! the latest is recorded, with the number of those before it, and no end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use egret_base::{Clock, Entropy, Timestamp};

use super::quota::{Bucket, minute};
use super::{AuditEntry, AuditLog, OBJECT_BYTES_MAX, lock};

/// Sessions of one role, branch and address that are recorded in a minute with opening and end.
pub(super) const SESSIONS_PER_MINUTE_MAX: u64 = 20;

/// Sessions of one tenant that are.
pub(super) const SESSIONS_PER_TENANT_MINUTE_MAX: u64 = 300;

/// Roles, branches and addresses whose sessions are counted one by one in a minute; those of
/// further ones are counted together.
const TALLIES_MAX: usize = 4_096;

/// The operation of a session that was opened or refused.
const OPEN: &str = "openBranchSession";

/// The operation of a session that has ended.
const END: &str = "endBranchSession";

/// A session as its client asks for it.
#[derive(Clone, Debug)]
pub(crate) struct SessionAttempt {
    /// Where the client is.
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
    /// The status that HTTP has for it.
    pub(crate) status: u16,
    /// A word, as metrics have it.
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
    opened: Instant,
    reason: &'static str,
}

impl SessionAudit {
    pub(crate) fn new(
        log: Arc<AuditLog>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            log,
            clock,
            entropy,
        }
    }

    /// Records that a session was opened; `None` where it is only counted.
    pub(crate) fn opened(&self, attempt: &SessionAttempt) -> Option<SessionRecord> {
        let entry = self.entry(attempt, 200);
        self.log.settle_sessions(Some(entry.at));
        if !lock(&self.log.sessions).take(&entry) {
            return None;
        }
        self.log.submit(entry.clone());
        Some(SessionRecord {
            log: self.log.clone(),
            clock: self.clock.clone(),
            entry,
            opened: Instant::now(),
            reason: "stopping",
        })
    }

    /// Records that a session was refused.
    pub(crate) fn refused(&self, attempt: &SessionAttempt, refusal: SessionRefusal) {
        let mut entry = self.entry(attempt, refusal.status);
        entry.reason = Some(refusal.reason.to_owned());
        let branch = format!("{}.{}", attempt.branch, attempt.tenant);
        let is_written = if attempt.is_authenticated {
            let buckets = [Bucket::Branch(&branch), Bucket::Tenant(&attempt.tenant)];
            self.log.take_failed(&entry, &buckets)
        } else {
            self.log.take_failed(&entry, &[Bucket::WithoutPassword])
        };
        if is_written {
            self.log.submit(entry);
        }
    }

    fn entry(&self, attempt: &SessionAttempt, status: u16) -> AuditEntry {
        let at = self.clock.now();
        AuditEntry {
            at,
            request_id: egret_base::id::v7(at, self.entropy.ten()).to_string(),
            token: None,
            token_name: None,
            tenant: Some(shorten(&attempt.tenant)),
            address: Some(attempt.address.to_canonical().to_string()),
            operation: OPEN.to_owned(),
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
    pub(crate) fn note_end(&mut self, reason: &'static str) {
        self.reason = reason;
    }
}

impl Drop for SessionRecord {
    fn drop(&mut self) {
        let elapsed = self.opened.elapsed().as_millis();
        self.log.submit(AuditEntry {
            at: self.clock.now(),
            operation: END.to_owned(),
            suppressed: 0,
            reason: Some(self.reason.to_owned()),
            duration_ms: Some(u64::try_from(elapsed).unwrap_or(u64::MAX)),
            ..self.entry.clone()
        });
    }
}

/// The sessions that were opened in the current minute.
#[derive(Default)]
pub(super) struct SessionQuota {
    minute: i64,
    tallies: HashMap<SessionKey, Tally>,
    by_tenant: HashMap<Option<String>, u64>,
}

/// Whose sessions are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SessionKey {
    tenant: Option<String>,
    branch: Option<String>,
    role: Option<String>,
    address: Option<String>,
}

#[derive(Default)]
struct Tally {
    recorded: u64,
    /// The latest session that was counted only, with the number of those before it.
    counted: Option<AuditEntry>,
}

impl SessionQuota {
    /// Counts the opening of a session. Returns whether it is to be recorded.
    fn take(&mut self, entry: &AuditEntry) -> bool {
        let mut key = SessionKey {
            tenant: entry.tenant.clone(),
            branch: entry.object.clone(),
            role: entry.role.clone(),
            address: entry.address.clone(),
        };
        if self.tallies.len() >= TALLIES_MAX && !self.tallies.contains_key(&key) {
            key = SessionKey::default();
        }
        let tally = self.tallies.entry(key).or_default();
        let of_tenant = self.by_tenant.entry(entry.tenant.clone()).or_default();
        if tally.recorded < SESSIONS_PER_MINUTE_MAX && *of_tenant < SESSIONS_PER_TENANT_MINUTE_MAX {
            tally.recorded += 1;
            *of_tenant += 1;
            return true;
        }
        let before = tally.counted.as_ref();
        let suppressed = before.map_or(0, |before| before.suppressed + 1);
        tally.counted = Some(AuditEntry {
            suppressed,
            ..entry.clone()
        });
        false
    }

    /// Takes the entries of sessions that were counted only, unless the minute of `now` is still
    /// the one in which they were.
    pub(super) fn settle(&mut self, now: Option<Timestamp>) -> Vec<AuditEntry> {
        let minute = now.map_or(self.minute, minute);
        if now.is_some() && minute == self.minute {
            return Vec::new();
        }
        let tallies = self.tallies.values_mut();
        let mut counted: Vec<AuditEntry> =
            tallies.filter_map(|tally| tally.counted.take()).collect();
        counted.sort_unstable_by_key(|entry| entry.at);
        if now.is_some() {
            *self = Self {
                minute,
                ..Self::default()
            };
        }
        counted
    }
}

fn shorten(text: &str) -> String {
    text[..text.floor_char_boundary(OBJECT_BYTES_MAX)].to_owned()
}
