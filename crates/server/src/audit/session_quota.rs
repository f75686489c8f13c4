//! How many sessions are recorded in a minute.
//!
//! An application without a pool opens hundreds of sessions in a second. So of one role, branch and
//! address only so many are recorded in a minute, of one tenant a few times as many; of the others
//! the latest is recorded, with the number of those before it, and no end.

use std::collections::HashMap;

use egret_base::Timestamp;

use super::entry::AuditEntry;
use super::quota::minute;

/// Sessions of one role, branch and address that are recorded in a minute with opening and end.
pub(super) const SESSIONS_PER_MINUTE_MAX: u64 = 20;

/// Sessions of one tenant that are recorded in a minute with opening and end.
pub(super) const SESSIONS_PER_TENANT_MINUTE_MAX: u64 = 300;

/// Roles, branches and addresses whose sessions are counted one by one in a minute; those of
/// further ones are counted together.
const TALLIES_MAX: usize = 4_096;

/// The sessions that were opened in the current minute.
#[derive(Default)]
pub(super) struct SessionQuota {
    minute: i64,
    tallies: HashMap<SessionKey, Tally>,
    by_tenant: HashMap<Option<String>, u64>,
}

/// Key by which sessions are counted together.
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
    latest_unrecorded: Option<AuditEntry>,
}

impl SessionQuota {
    /// Counts the opening of a session. Returns whether it is to be recorded.
    pub(super) fn try_count(&mut self, entry: &AuditEntry) -> bool {
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
        let tenant_count = self.by_tenant.entry(entry.tenant.clone()).or_default();
        if tally.recorded < SESSIONS_PER_MINUTE_MAX
            && *tenant_count < SESSIONS_PER_TENANT_MINUTE_MAX
        {
            tally.recorded += 1;
            *tenant_count += 1;
            return true;
        }
        let previous = tally.latest_unrecorded.as_ref();
        let suppressed = previous.map_or(0, |before| before.suppressed + 1);
        tally.latest_unrecorded = Some(AuditEntry { suppressed, ..entry.clone() });
        false
    }

    /// Takes the entries of sessions that were counted only, unless the minute of `now` is still
    /// the one in which they were.
    pub(super) fn take_tallies(&mut self, now: Option<Timestamp>) -> Vec<AuditEntry> {
        let minute = now.map_or(self.minute, minute);
        if now.is_some() && minute == self.minute {
            return Vec::new();
        }
        let tallies = self.tallies.values_mut();
        let mut entries: Vec<AuditEntry> =
            tallies.filter_map(|tally| tally.latest_unrecorded.take()).collect();
        entries.sort_unstable_by_key(|entry| entry.at);
        if now.is_some() {
            *self = Self { minute, ..Self::default() };
        }
        entries
    }
}
