//! A watch over the databases of a server: an engine visits each of them repeatedly, because a
//! database may be created or restored without the engine's knowledge.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use egret_base::CodedError;
use egret_base::condition::ConditionSet;
use egret_base::sync::lock;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::databases::Databases;
use crate::error::PostgresError;
use crate::retry::Policy;

/// How long after all databases were visited the next round begins.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// How long after a visit that failed the same database is visited again, whatever the others do.
const RETRY_POLICY: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Failures in a row that a restart of the server explains: they are no fault yet.
const FAILURES_PASSING: u32 = 5;

/// The subject of a fault that keeps the list of databases from being read.
const ALL_DATABASES: &str = "all databases";

/// What an engine does in each database.
pub trait DatabaseVisitor: Send + Sync {
    /// Error of a visit to one database.
    type Error: CodedError + From<PostgresError>;

    /// Visits a database, and remembers what is found. A database that is gone is no error.
    fn visit(&self, database: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Visits the databases of a server again and again, and retries failed visits with growing waits.
pub struct DatabaseWatch {
    databases: Databases,
    /// Databases that cannot be visited, by name.
    faults: ConditionSet,
    /// What the visits look for, for messages, such as `outboxes`.
    visit_target: &'static str,
    schedule: Mutex<Schedule>,
}

/// Times of the next visits.
struct Schedule {
    next_round: Instant,
    /// Databases whose last visit failed.
    failing: BTreeMap<String, FailedVisit>,
}

/// A database whose last visit failed, or the list of databases.
struct FailedVisit {
    failures: u32,
    /// Time of the next visit.
    due: Instant,
}

impl DatabaseWatch {
    /// A watch that has not started. `sought` names what the visits look for, in the plural.
    pub fn new(databases: Databases, faults: ConditionSet, visit_target: &'static str) -> Self {
        Self {
            databases,
            faults,
            visit_target,
            schedule: Mutex::new(Schedule { next_round: Instant::now(), failing: BTreeMap::new() }),
        }
    }

    /// Visits every database once. A failed visit does not prevent the others.
    ///
    /// # Errors
    /// The last one. It is a condition after a few visits in a row, and at once where a retry does
    /// not help.
    pub async fn visit_all<V: DatabaseVisitor>(&self, visitor: &V) -> Result<(), V::Error> {
        let names = match self.databases.names().await {
            Ok(names) => names,
            Err(error) => {
                let due = self.record_failure(ALL_DATABASES, &error);
                self.schedule().next_round = due;
                return Err(error.into());
            }
        };
        self.record_success(ALL_DATABASES);
        let exists = |subject: &str| names.iter().any(|name| name == subject);
        self.faults.retain(exists);
        self.schedule().failing.retain(|subject, _| exists(subject.as_str()));
        let result = self.visit_each(visitor, &names).await;
        self.schedule().next_round = Instant::now() + ROUND_INTERVAL;
        result
    }

    /// Visits the databases whose last visit failed and that are due.
    async fn visit_failing<V: DatabaseVisitor>(&self, visitor: &V) {
        let now = Instant::now();
        let names: Vec<String> = self
            .schedule()
            .failing
            .iter()
            .filter(|(name, failing)| *name != ALL_DATABASES && failing.due <= now)
            .map(|(name, _)| name.clone())
            .collect();
        // A failure is reported as a condition.
        _ = self.visit_each(visitor, &names).await;
    }

    async fn visit_each<V: DatabaseVisitor>(
        &self,
        visitor: &V,
        names: &[String],
    ) -> Result<(), V::Error> {
        let mut result = Ok(());
        for name in names {
            match visitor.visit(name).await {
                Ok(()) => self.record_success(name),
                Err(error) => {
                    self.record_failure(name, &error);
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Whether the list of databases, or one of them, has a condition.
    pub fn has_condition(&self) -> bool {
        self.faults.is_any_active()
    }

    /// Notes a failure, and returns when the subject is tried again.
    fn record_failure(&self, subject: &str, error: &impl CodedError) -> Instant {
        let (failures, due) = {
            let mut schedule = self.schedule();
            let previous = schedule.failing.get(subject);
            let failures = previous.map_or(0, |failing| failing.failures) + 1;
            let due = Instant::now() + RETRY_POLICY.wait_after(failures);
            let failing = FailedVisit { failures, due };
            schedule.failing.insert(subject.to_owned(), failing);
            (failures, due)
        };
        if failures > FAILURES_PASSING || !error.retryable() {
            let message = format!("cannot look for {}; retrying", self.visit_target);
            self.faults.fail(subject, error, &message);
        }
        due
    }

    fn record_success(&self, subject: &str) {
        self.schedule().failing.remove(subject);
        let message = format!("{} are looked for again", self.visit_target);
        self.faults.recover(subject, &message);
    }

    /// How long from now the next visit is due.
    pub fn time_until_next_visit(&self) -> Duration {
        let schedule = self.schedule();
        let failing = schedule.failing.values().map(|failing| failing.due);
        let next = failing.fold(schedule.next_round, Instant::min);
        next.saturating_duration_since(Instant::now())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// Visits every database after `first_wait`, then repeatedly, and at once when something has
    /// `changed`, until `stopping` is set. Failed visits are retried between the rounds. A visit in
    /// progress is dropped then: the server may not answer.
    pub async fn run<V: DatabaseVisitor>(
        &self,
        visitor: &V,
        first_wait: Duration,
        changed: &Notify,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut wait = first_wait;
        while !*stopping.borrow_and_update() && stopping.has_changed().is_ok() {
            let are_all_due = tokio::select! {
                _ = stopping.changed() => continue,
                () = changed.notified() => true,
                () = tokio::time::sleep(wait) => self.schedule().next_round <= Instant::now(),
            };
            let visiting = async {
                if are_all_due {
                    // A failure is reported as a condition.
                    _ = self.visit_all(visitor).await;
                } else {
                    self.visit_failing(visitor).await;
                }
            };
            tokio::select! {
                _ = stopping.changed() => continue,
                () = visiting => {}
            }
            wait = self.time_until_next_visit();
        }
    }
}
