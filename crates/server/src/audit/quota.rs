//! How many entries without success are written in a minute, so that a flood of them, which costs
//! its sender nothing, does not rotate everything else away. The others are counted only.

use std::collections::HashMap;

use egret_base::Timestamp;

/// Entries without success (status 400 and above) that are written in a minute for one token, for
/// all requests without a valid one together, for all sessions without a valid password together,
/// and for one branch.
pub(super) const FAILED_PER_MINUTE_MAX: u64 = 60;

/// Entries without success that are written in a minute for one tenant, however many tokens and
/// branches it has.
pub(super) const FAILED_PER_TENANT_MINUTE_MAX: u64 = 240;

/// Tokens, tenants and branches whose entries are counted one by one in a minute; those of further
/// ones are counted together.
const BUCKETS_MAX: usize = 8_192;

/// What an entry without success counts against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bucket<'a> {
    /// Requests without a valid token.
    WithoutToken,
    /// Sessions without a valid password.
    WithoutPassword,
    /// The token with this id.
    Token(&'a str),
    /// The sessions of a branch, as their clients write its name.
    Branch(&'a str),
    /// All tokens and branches of a tenant.
    Tenant(&'a str),
}

impl Bucket<'_> {
    fn max(self) -> u64 {
        match self {
            Bucket::Tenant(_) => FAILED_PER_TENANT_MINUTE_MAX,
            _ => FAILED_PER_MINUTE_MAX,
        }
    }

    fn key(self) -> (&'static str, String) {
        match self {
            Bucket::WithoutToken => ("token", String::new()),
            Bucket::WithoutPassword => ("branch", String::new()),
            Bucket::Token(id) => ("token", id.to_owned()),
            Bucket::Branch(name) => ("branch", name.to_owned()),
            Bucket::Tenant(name) => ("tenant", name.to_owned()),
        }
    }
}

/// The minute of a time.
pub(super) fn minute(time: Timestamp) -> i64 {
    time.as_micros().div_euclid(60_000_000)
}

/// Entries without success of the current minute.
#[derive(Default)]
pub(super) struct FailedQuota {
    minute: i64,
    counts: HashMap<(&'static str, String), u64>,
}

impl FailedQuota {
    /// Counts an entry in one bucket after the other until one is full. Returns whether none is.
    pub(super) fn try_count(&mut self, buckets: &[Bucket<'_>], now: Timestamp) -> bool {
        let minute = minute(now);
        if minute != self.minute {
            self.minute = minute;
            self.counts.clear();
        }
        buckets.iter().all(|bucket| {
            let mut key = bucket.key();
            if self.counts.len() >= BUCKETS_MAX && !self.counts.contains_key(&key) {
                key.1 = String::new();
            }
            let count = self.counts.entry(key).or_default();
            *count += 1;
            *count <= bucket.max()
        })
    }
}
