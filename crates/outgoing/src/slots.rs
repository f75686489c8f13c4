//! Slots for requests that are in progress at the same time, so that no receiver and no tenant
//! takes all of them.
//!
//! A receiver that does not answer holds each of its requests until the timeout. It therefore gets
//! a bounded number of slots; after a few failures in a row it is tried by one request at a time,
//! with growing pauses. Receivers that have not answered quickly the last time share half of the
//! slots, which also bounds many names of one dead receiver. One tenant takes three quarters at
//! most.
//!
//! Each tenant has a record of its own of a receiver: the failures of its requests, which it can
//! cause at will with a path that hangs, make the receiver unreachable for no other tenant.

use std::collections::HashMap;
use std::time::Duration;

use egret_base::zero_on_underflow;

use crate::Url;

/// Failures in a row after which a receiver counts as unreachable.
const FAILURES_MAX: u32 = 3;

/// The first pause of an unreachable receiver, in milliseconds; each further one is twice as long.
const PAUSE_FIRST_MS: u64 = 1_000;

/// The longest pause of an unreachable receiver, in milliseconds.
const PAUSE_MAX_MS: u64 = 60_000;

/// An answer within this time is quick.
const QUICK_ANSWER_MAX: Duration = Duration::from_secs(1);

/// Receivers remembered; beyond it those without a request in progress are forgotten.
const RECEIVERS_MAX: usize = 4_096;

/// Host and port of a URL, by which requests are counted. Holds neither path nor credentials.
pub fn receiver_of(url: &str) -> String {
    let url = Url::parse(url).ok();
    let receiver =
        url.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    receiver.map_or_else(String::new, |(host, port)| format!("{host}:{port}"))
}

/// A tenant's record of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReceiverKey {
    tenant: String,
    receiver: String,
}

impl ReceiverKey {
    fn new(receiver: &str, tenant: &str) -> Self {
        Self { tenant: tenant.to_owned(), receiver: receiver.to_owned() }
    }
}

/// How a request ended, as far as its receiver is concerned.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// The receiver answered, with whatever status, after this time.
    Answered(Duration),
    /// The receiver did not answer, for this reason.
    Unanswered(String),
}

/// Whether a request may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A slot was taken for it.
    Granted,
    /// No slot is free for it.
    Busy,
    /// The receiver does not answer and is tried again later, with the reason of the last failure.
    Unreachable(String),
}

#[derive(Default)]
struct Receiver {
    in_progress: usize,
    /// Whether its last request was answered quickly.
    is_quick: bool,
    /// Requests in progress that were begun while it was not known to be quick.
    slow_in_progress: usize,
    /// Failures in a row.
    failures: u32,
    reason: String,
    /// When an unreachable receiver is tried again, in milliseconds of the caller's clock.
    retry_at_ms: u64,
}

impl Receiver {
    fn is_unreachable(&self) -> bool {
        self.failures >= FAILURES_MAX
    }
}

/// A fixed number of slots, shared by receivers and tenants.
pub struct Slots {
    total: usize,
    per_receiver: usize,
    receivers: HashMap<ReceiverKey, Receiver>,
    tenants: HashMap<String, usize>,
    in_progress: usize,
    slow_in_progress: usize,
}

impl Slots {
    /// `total` requests at a time, `per_receiver` of them of one tenant to one host and port; zero:
    /// a quarter.
    pub fn new(total: usize, per_receiver: usize) -> Self {
        let per_receiver = match per_receiver {
            0 => total.div_ceil(4),
            per_receiver => per_receiver,
        };
        Self {
            total,
            per_receiver,
            receivers: HashMap::new(),
            tenants: HashMap::new(),
            in_progress: 0,
            slow_in_progress: 0,
        }
    }

    /// Takes a slot for a request of a tenant to a receiver, if one is free.
    pub fn acquire(&mut self, receiver: &str, tenant: &str, now_ms: u64) -> Admission {
        let key = ReceiverKey::new(receiver, tenant);
        let record = self.receivers.get(&key);
        if let Some(known) = record.filter(|known| known.is_unreachable())
            && (known.in_progress > 0 || now_ms < known.retry_at_ms)
        {
            return Admission::Unreachable(known.reason.clone());
        }
        let (in_progress, is_quick) =
            record.map_or((0, false), |known| (known.in_progress, known.is_quick));
        let tenant_in_progress = self.tenants.get(tenant).copied().unwrap_or(0);
        let is_free = self.in_progress < self.total
            && in_progress < self.per_receiver
            && tenant_in_progress < (self.total - self.total / 4)
            && (is_quick || self.slow_in_progress < self.total.div_ceil(2));
        if !is_free {
            return Admission::Busy;
        }
        if record.is_none() {
            self.evict_idle_receivers();
        }
        let known = self.receivers.entry(key).or_default();
        known.in_progress += 1;
        if !is_quick {
            known.slow_in_progress += 1;
            self.slow_in_progress += 1;
        }
        *self.tenants.entry(tenant.to_owned()).or_default() += 1;
        self.in_progress += 1;
        Admission::Granted
    }

    /// Gives back the slot of a request. Returns whether its receiver counts as unreachable
    /// for the tenant from now on.
    pub fn release(
        &mut self,
        receiver: &str,
        tenant: &str,
        delivery: Delivery,
        now_ms: u64,
    ) -> bool {
        let in_progress = self.in_progress.checked_sub(1);
        self.in_progress = zero_on_underflow(in_progress, "outgoing requests in progress");
        let tenant_in_progress = self.tenants.get(tenant).and_then(|own| own.checked_sub(1));
        match zero_on_underflow(tenant_in_progress, "outgoing requests of a tenant") {
            0 => drop(self.tenants.remove(tenant)),
            own => drop(self.tenants.insert(tenant.to_owned(), own)),
        }
        let Some(record) = self.receivers.get_mut(&ReceiverKey::new(receiver, tenant)) else {
            return false;
        };
        let in_progress = record.in_progress.checked_sub(1);
        record.in_progress = zero_on_underflow(in_progress, "outgoing requests to a receiver");
        if record.slow_in_progress > 0 {
            record.slow_in_progress -= 1;
            self.slow_in_progress -= 1;
        }
        match delivery {
            Delivery::Answered(duration) => {
                record.is_quick = duration < QUICK_ANSWER_MAX;
                record.failures = 0;
            }
            Delivery::Unanswered(reason) => {
                record.is_quick = false;
                record.failures += 1;
                record.reason = reason;
            }
        }
        if record.is_unreachable() {
            let doublings = (record.failures - FAILURES_MAX).min(16);
            let pause_ms = (PAUSE_FIRST_MS << doublings).min(PAUSE_MAX_MS);
            record.retry_at_ms = now_ms + pause_ms;
        }
        record.is_unreachable()
    }

    /// Number of requests in progress.
    pub fn in_progress(&self) -> usize {
        self.in_progress
    }

    /// Whether another request could be sent to some receiver.
    pub fn has_room(&self) -> bool {
        self.in_progress < self.total
    }

    /// Receivers that count as unreachable, once for each tenant.
    pub fn unreachable_count(&self) -> usize {
        let records = self.receivers.values();
        records.filter(|known| known.is_unreachable()).count()
    }

    fn evict_idle_receivers(&mut self) {
        if self.receivers.len() >= RECEIVERS_MAX {
            self.receivers.retain(|_, record| record.in_progress > 0);
        }
    }
}

#[cfg(test)]
mod tests;
