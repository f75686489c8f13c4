//! Looks for databases with documents that nobody has asked for: their subscribers are told all the same.

use std::time::Duration;

use egret_base::Coded;
use egret_postgres::databases::is_gone;
use egret_postgres::retry::Policy;
use tokio::sync::watch;

use super::{Documents, lock};
use crate::error::DocumentsError;
use crate::store::install;
use crate::worker::keeper::Standing;

/// How often it is looked for them, such as those of a restored database.
const LOOK_AROUND: Duration = Duration::from_secs(30);

/// How long it is waited after a look that failed.
const AGAIN: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Failures in a row that a restart of the server explains: they are no fault yet.
const FAILURES_PASSING: u32 = 5;

/// Looks for databases with documents until everything stops. `failures` is how often that has failed already.
pub(super) async fn watch_over(
    documents: Documents,
    mut failures: u32,
    mut stopping: watch::Receiver<bool>,
) {
    while !*stopping.borrow() {
        let wait = match failures {
            0 => LOOK_AROUND,
            failures => AGAIN.wait(failures),
        };
        tokio::select! {
            _ = stopping.changed() => continue,
            () = tokio::time::sleep(wait) => {}
        }
        let looked = tokio::select! {
            // The server may not answer.
            _ = stopping.changed() => continue,
            looked = documents.look_around(failures) => looked,
        };
        failures = match looked {
            Ok(()) => 0,
            Err(_) => failures.saturating_add(1),
        };
    }
}

impl Documents {
    /// Keeps the documents of every database that has some. A database that cannot be looked at keeps no other one from it.
    /// After so many `failures` in a row, and at once where trying again does not help, it is a condition.
    ///
    /// # Errors
    /// The last one.
    pub(super) async fn look_around(&self, failures: u32) -> Result<(), DocumentsError> {
        let unseen = &self.inner.unseen;
        let passes = failures < FAILURES_PASSING;
        let databases = &self.inner.options.databases;
        let names = match databases.names().await {
            Ok(names) => names,
            Err(error) => {
                if !passes || !error.retryable() {
                    unseen.fail(&error, "cannot look for databases with documents; retrying");
                }
                return Err(error.into());
            }
        };
        let mut seen = Ok(());
        for name in names {
            if let Err(error) = self.look_into(&name).await {
                if !passes || !error.retryable() {
                    let reason = format_args!("{name}: {error}");
                    unseen.fail(reason, "cannot look for documents in a database; retrying");
                }
                seen = Err(error);
            }
        }
        if seen.is_ok() {
            unseen.recover("databases with documents are looked for again");
        }
        seen
    }

    async fn look_into(&self, name: &str) -> Result<(), DocumentsError> {
        let is_kept = lock(&self.inner.kept)
            .get(name)
            .is_some_and(|kept| kept.keeper.standing() != Standing::Gone);
        if is_kept {
            return Ok(());
        }
        let client = match self.inner.options.databases.client(name).await {
            // It was dropped meanwhile.
            Err(error) if is_gone(&error) => return Ok(()),
            client => client?,
        };
        match install::is_installed(&client).await? {
            true => self.keep(name).await.map(|_| ()),
            false => Ok(()),
        }
    }

    /// Looks for databases with documents from now on.
    pub(super) async fn begin_watch(&self) {
        let failures = u32::from(self.look_around(0).await.is_err());
        let (stopping, stopped) = watch::channel(false);
        let task = tokio::spawn(watch_over(self.clone(), failures, stopped));
        *lock(&self.inner.watcher) = Some((stopping, task));
    }

    /// Looks for none any more.
    pub(super) async fn end_watch(&self) {
        let watcher = lock(&self.inner.watcher).take();
        if let Some((stopping, task)) = watcher {
            stopping.send_replace(true);
            if let Err(error) = task.await {
                tracing::error!(%error, "the watch over databases with documents panicked");
            }
        }
    }
}
