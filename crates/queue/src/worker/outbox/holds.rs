//! Holds: queues that accept nothing at the moment, and roles with rows for more missing queues
//! than are held. Their rows wait, those of others go on.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use egret_base::Condition;
use egret_postgres::retry::Policy;
use tokio::time::Instant;

use crate::error::QueueError;
use crate::store::outbox::{HeldRows, OutboxRow};

/// Delays before the rows of a held queue or role are tried again.
const HOLD_POLICY: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Missing queues held at a time for one role. A role that writes rows makes up their names, as
/// many as there are rows, while existing ones are bounded by `queue.queues_max`.
const MISSING_QUEUES_HELD_MAX: usize = 100;

/// Whether a queue exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Existing,
    /// It could not be created on demand.
    Missing,
}

/// Decision on a row that was refused for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowDecision {
    /// It waits in the outbox.
    Waiting,
    /// It is rejected: its role has too many missing queues, and a limit forbids to create them.
    Rejected,
}

pub(super) struct HoldTable {
    database: String,
    by_queue: HashMap<String, QueueHold>,
    /// Holds of roles with rows for missing queues that are not held.
    by_role: HashMap<String, Pause>,
}

/// How long a queue or role is held, and why.
struct Pause {
    until: Instant,
    refusals: u32,
    reason: String,
    waiting_condition: Condition,
}

struct QueueHold {
    pause: Pause,
    presence: Presence,
    /// The role whose row caused the hold.
    role: String,
}

impl Pause {
    fn new(subject: &str) -> Self {
        Self {
            until: Instant::now(),
            refusals: 0,
            reason: String::new(),
            waiting_condition: Condition::new("outbox_rows_waiting", subject),
        }
    }

    fn is_active(&self, now: Instant) -> bool {
        self.until > now
    }

    fn extend(&mut self, subject: &str, error: &QueueError) {
        self.refusals += 1;
        self.until = Instant::now() + HOLD_POLICY.wait_after(self.refusals);
        self.reason = error.to_string();
        // A queue that accepts nothing at present is no fault of the outbox.
        if self.waiting_condition.begin(error) {
            let condition = "outbox_rows_waiting";
            tracing::info!(condition, subject, %error, "rows of the outbox wait");
        }
    }
}

impl HoldTable {
    pub(crate) fn new(database: &str) -> Self {
        Self { database: database.to_owned(), by_queue: HashMap::new(), by_role: HashMap::new() }
    }

    /// Number of queues that are held, or were and have not been tried again.
    pub(crate) fn len(&self) -> usize {
        self.by_queue.len()
    }

    /// What is not read now, where `existing` lists the existing queues and `existing_count` is
    /// their number. The query returns `rows_max` rows.
    pub(crate) fn held_rows(
        &self,
        rows_max: usize,
        existing_count: usize,
        existing: impl FnOnce() -> Vec<String>,
    ) -> HeldRows {
        let now = Instant::now();
        let queues: Vec<String> = self
            .by_queue
            .iter()
            .filter(|(_, hold)| hold.pause.is_active(now))
            .map(|(name, _)| name.clone())
            .collect();
        let roles: Vec<String> = self
            .by_role
            .iter()
            .filter(|(_, pause)| pause.is_active(now))
            .map(|(role, _)| role.clone())
            .collect();
        // There may be a queue for each row of a role. Of one that has more than these, at least
        // `rows_max` neither exist nor are held: their rows fill batches until they are tasks,
        // rejected or held, and then the next look comes further.
        let role_queues_max = existing_count + queues.len() + rows_max;
        HeldRows {
            queues,
            existing: if roles.is_empty() { Vec::new() } else { existing() },
            roles,
            role_queues_max: i64::try_from(role_queues_max).unwrap_or(i64::MAX),
        }
    }

    /// Removes the holds of queues and roles that were read and have no rows.
    pub(crate) fn retain_held(&mut self, held: &HeldRows) {
        self.by_queue.retain(|name, hold| {
            let was_passed_over =
                hold.presence == Presence::Missing && held.roles.contains(&hold.role);
            was_passed_over || held.queues.contains(name)
        });
        self.by_role.retain(|role, _| held.roles.contains(role));
    }

    /// The queues held, with the reason.
    pub(crate) fn reasons(&self) -> BTreeMap<String, String> {
        let held = self.by_queue.iter();
        held.map(|(name, hold)| (name.clone(), hold.pause.reason.clone())).collect()
    }

    /// The first role with rows for missing queues that are not held, with the reason.
    pub(crate) fn waiting_role(&self) -> Option<(&str, &str)> {
        let first = self.by_role.iter().min_by_key(|(role, _)| role.as_str());
        first.map(|(role, pause)| (role.as_str(), pause.reason.as_str()))
    }

    /// Holds the queue of a refused row, or its role where that has too many missing queues.
    pub(crate) fn hold(
        &mut self,
        row: &OutboxRow,
        presence: Presence,
        error: &QueueError,
    ) -> RowDecision {
        let (queue, role) = (&row.queue, &row.enqueued_by);
        let is_known = self.by_queue.contains_key(queue);
        if !is_known
            && presence == Presence::Missing
            && self.missing_queue_count(role) >= MISSING_QUEUES_HELD_MAX
        {
            // Any other reason than a limit may pass.
            if matches!(error, QueueError::Limit(_)) {
                return RowDecision::Rejected;
            }
            self.hold_role(role, error);
            return RowDecision::Waiting;
        }
        let (now, subject) = (Instant::now(), format!("{}, queue {queue}", self.database));
        let hold = match self.by_queue.entry(queue.clone()) {
            // The other rows of the same batch.
            Entry::Occupied(occupied) if occupied.get().pause.is_active(now) => {
                return RowDecision::Waiting;
            }
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(QueueHold {
                pause: Pause::new(&subject),
                presence,
                role: role.clone(),
            }),
        };
        hold.pause.extend(&subject, error);
        hold.presence = presence;
        RowDecision::Waiting
    }

    fn hold_role(&mut self, role: &str, error: &QueueError) {
        let subject = format!("{}, role {role}", self.database);
        let pause = self.by_role.entry(role.to_owned());
        let pause = pause.or_insert_with(|| Pause::new(&subject));
        // The other rows of the same batch.
        if !pause.is_active(Instant::now()) {
            pause.extend(&subject, error);
        }
    }

    fn missing_queue_count(&self, role: &str) -> usize {
        let held = self.by_queue.values();
        held.filter(|hold| hold.presence == Presence::Missing && hold.role == role).count()
    }

    /// Removes the hold of a queue of which a row was accepted.
    pub(crate) fn release(&mut self, queue: &str) {
        let now = Instant::now();
        // Another row of the same batch may have been refused.
        if self.by_queue.get(queue).is_some_and(|hold| !hold.pause.is_active(now))
            && let Some(hold) = self.by_queue.remove(queue)
        {
            let waiting_condition = hold.pause.waiting_condition;
            waiting_condition.recover("the queue takes rows of the outbox again");
        }
    }

    /// Time until a hold ends.
    pub(crate) fn next_retry_delay(&self) -> Duration {
        let next = self.next_retry_at();
        next.map_or(Duration::MAX, |instant| instant.saturating_duration_since(Instant::now()))
    }

    /// When the next hold ends.
    fn next_retry_at(&self) -> Option<Instant> {
        let queues = self.by_queue.values().map(|hold| {
            let role = match hold.presence {
                Presence::Existing => None,
                // It is passed over with its role.
                Presence::Missing => self.by_role.get(&hold.role),
            };
            role.map_or(hold.pause.until, |role| role.until.max(hold.pause.until))
        });
        let roles = self.by_role.values().map(|pause| pause.until);
        queues.chain(roles).min()
    }
}

#[cfg(test)]
mod tests;
