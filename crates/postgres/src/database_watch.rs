//! A watch over the databases of a server: an engine visits each of them again and again, as one may come or be
//! restored that it knows nothing of.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use egret_base::Coded;
use egret_base::condition::ConditionSet;
use tokio::sync::{Notify, watch};

use crate::databases::Databases;
use crate::error::PostgresError;
use crate::retry::Policy;

/// How long after all databases were visited the next round begins.
const ROUND_INTERVAL: Duration = Duration::from_secs(30);

/// How long after a round that failed the next one begins.
const RETRY: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Rounds in a row whose failures a restart of the server explains: they are no fault yet.
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
    /// Rounds in a row that failed.
    failures: AtomicU32,
}

impl DatabaseWatch {
    /// A watch that has not begun. `sought` is what is looked for, in the plural.
    pub fn new(databases: Databases, faults: ConditionSet, sought: &'static str) -> Self {
        Self {
            databases,
            faults,
            sought,
            failures: AtomicU32::new(0),
        }
    }

    /// Visits every database once. One that cannot be visited keeps no other one from it.
    ///
    /// # Errors
    /// The last one. It is a condition after a few rounds in a row, and at once where trying again does not help.
    pub async fn visit_all<V: DatabaseVisitor>(&self, visitor: &V) -> Result<(), V::Error> {
        let visited = self.try_to_visit_all(visitor).await;
        match &visited {
            Ok(()) => self.failures.store(0, Ordering::Relaxed),
            Err(_) => _ = self.failures.fetch_add(1, Ordering::Relaxed),
        }
        visited
    }

    async fn try_to_visit_all<V: DatabaseVisitor>(&self, visitor: &V) -> Result<(), V::Error> {
        let names = match self.databases.names().await {
            Ok(names) => names,
            Err(error) => {
                self.fail(ALL_DATABASES, &error);
                return Err(error.into());
            }
        };
        self.recover(ALL_DATABASES);
        self.faults
            .retain(|subject| names.iter().any(|name| name == subject));
        let mut visited = Ok(());
        for name in &names {
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

    fn fail(&self, subject: &str, error: &impl Coded) {
        let is_passing = self.failures.load(Ordering::Relaxed) < FAILURES_PASSING;
        if !is_passing || !error.retryable() {
            let message = format!("cannot look for {}; retrying", self.sought);
            self.faults.fail(subject, error, &message);
        }
    }

    fn recover(&self, subject: &str) {
        let message = format!("{} are looked for again", self.sought);
        self.faults.recover(subject, &message);
    }

    /// When the next round is due, from the end of the last one.
    pub fn pause(&self) -> Duration {
        match self.failures.load(Ordering::Relaxed) {
            0 => ROUND_INTERVAL,
            failures => RETRY.wait(failures),
        }
    }

    /// Visits every database after `first_wait`, then again and again, and at once when something has `changed`, until
    /// `stopping` says so. A visit that is under way then is dropped: the server may not answer.
    pub async fn run<V: DatabaseVisitor>(
        &self,
        visitor: &V,
        first_wait: Duration,
        changed: &Notify,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut wait = first_wait;
        while !*stopping.borrow_and_update() && stopping.has_changed().is_ok() {
            tokio::select! {
                _ = stopping.changed() => continue,
                () = changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::select! {
                _ = stopping.changed() => continue,
                // It is a condition by now.
                _ = self.visit_all(visitor) => {}
            }
            wait = self.pause();
        }
    }
}
