//! A watch over the databases of a server: an engine visits each of them again and again, as one may come or be
//! restored that it knows nothing of.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use egret_base::Coded;
use egret_base::condition::ConditionSet;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::databases::Databases;
use crate::error::PostgresError;
use crate::retry::Policy;

/// How long after all databases were visited the next round begins.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// How long after a visit that failed the same database is visited again, whatever the others do.
const RETRY: Policy = Policy {
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
    /// Its error.
    type Error: Coded + From<PostgresError>;

    /// Looks into a database, and has what is found there kept. One that is gone is no error.
    fn visit(&self, database: &str) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// See the module.
pub struct DatabaseWatch {
    databases: Databases,
    /// Databases that cannot be visited, by name.
    faults: ConditionSet,
    /// What is looked for, in messages, such as `outboxes`.
    sought: &'static str,
    schedule: Mutex<Schedule>,
}

/// When what is visited next.
struct Schedule {
    /// All databases.
    next_round: Instant,
    /// Those whose last visit failed.
    failing: BTreeMap<String, Failing>,
}

/// A database whose last visit failed, or the list of databases.
struct Failing {
    /// In a row.
    failures: u32,
    /// When it is visited again.
    due: Instant,
}

impl DatabaseWatch {
    /// A watch that has not begun. `sought` is what is looked for, in the plural.
    pub fn new(databases: Databases, faults: ConditionSet, sought: &'static str) -> Self {
        Self {
            databases,
            faults,
            sought,
            schedule: Mutex::new(Schedule {
                next_round: Instant::now(),
                failing: BTreeMap::new(),
            }),
        }
    }

    /// Visits every database once. One that cannot be visited keeps no other one from it.
    ///
    /// # Errors
    /// The last one. It is a condition after a few visits in a row, and at once where trying again does not help.
    pub async fn visit_all<V: DatabaseVisitor>(&self, visitor: &V) -> Result<(), V::Error> {
        let names = match self.databases.names().await {
            Ok(names) => names,
            Err(error) => {
                let due = self.fail(ALL_DATABASES, &error);
                self.schedule().next_round = due;
                return Err(error.into());
            }
        };
        self.recover(ALL_DATABASES);
        let is_there = |subject: &str| names.iter().any(|name| name == subject);
        self.faults.retain(is_there);
        self.schedule()
            .failing
            .retain(|subject, _| is_there(subject.as_str()));
        let visited = self.visit_each(visitor, &names).await;
        self.schedule().next_round = Instant::now() + ROUND_INTERVAL;
        visited
    }

    /// Visits the databases of which a visit failed and that are due again.
    async fn visit_failing<V: DatabaseVisitor>(&self, visitor: &V) {
        let now = Instant::now();
        let names: Vec<String> = self
            .schedule()
            .failing
            .iter()
            .filter(|(name, failing)| *name != ALL_DATABASES && failing.due <= now)
            .map(|(name, _)| name.clone())
            .collect();
        // What fails is a condition by now.
        _ = self.visit_each(visitor, &names).await;
    }

    async fn visit_each<V: DatabaseVisitor>(
        &self,
        visitor: &V,
        names: &[String],
    ) -> Result<(), V::Error> {
        let mut visited = Ok(());
        for name in names {
            match visitor.visit(name).await {
                Ok(()) => self.recover(name),
                Err(error) => {
                    self.fail(name, &error);
                    visited = Err(error);
                }
            }
        }
        visited
    }

    /// Whether the list of databases, or one of them, has a condition.
    pub fn has_condition(&self) -> bool {
        self.faults.is_any_active()
    }

    /// Notes a failure, and returns when the subject is tried again.
    fn fail(&self, subject: &str, error: &impl Coded) -> Instant {
        let (failures, due) = {
            let mut schedule = self.schedule();
            let earlier = schedule.failing.get(subject);
            let failures = earlier.map_or(0, |failing| failing.failures) + 1;
            let due = Instant::now() + RETRY.wait(failures);
            let failing = Failing { failures, due };
            schedule.failing.insert(subject.to_owned(), failing);
            (failures, due)
        };
        if failures > FAILURES_PASSING || !error.retryable() {
            let message = format!("cannot look for {}; retrying", self.sought);
            self.faults.fail(subject, error, &message);
        }
        due
    }

    fn recover(&self, subject: &str) {
        self.schedule().failing.remove(subject);
        let message = format!("{} are looked for again", self.sought);
        self.faults.recover(subject, &message);
    }

    /// How long from now the next visit is due.
    pub fn pause(&self) -> Duration {
        let schedule = self.schedule();
        let failing = schedule.failing.values().map(|failing| failing.due);
        let next = failing.fold(schedule.next_round, Instant::min);
        next.saturating_duration_since(Instant::now())
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits every database after `first_wait`, then again and again, and at once when something has `changed`, until
    /// `stopping` says so. One that cannot be visited is tried again between the rounds. A visit that is under way then is
    /// dropped: the server may not answer.
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
                    // It is a condition by now.
                    _ = self.visit_all(visitor).await;
                } else {
                    self.visit_failing(visitor).await;
                }
            };
            tokio::select! {
                _ = stopping.changed() => continue,
                () = visiting => {}
            }
            wait = self.pause();
        }
    }
}
