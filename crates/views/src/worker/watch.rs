//! Looks for databases that have views, and has each of them kept.

use std::collections::BTreeMap;
use std::time::Duration;

use egret_base::condition::ConditionSet;
use egret_postgres::databases::is_gone;
use tokio::task::JoinHandle;

use super::{AGAIN, keep};
use crate::api::Views;
use crate::error::ViewsError;

/// How often it is looked for databases that got views without this Egret, such as restored ones.
const LOOK_AROUND: Duration = Duration::from_secs(30);

/// How long a refresh that is under way may take to end when everything stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Failures in a row that a restart of the server explains: they are no fault yet.
const FAILURES_PASSING: u32 = 5;

/// The subject of a fault that keeps the list of databases from being read.
const ALL_DATABASES: &str = "all databases";

/// Looks for databases with views and has them kept, until everything stops.
pub(crate) async fn watch_over(views: Views) {
    let mut stopping = views.inner.stopping.subscribe();
    let mut tasks: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
    let unreadable = ConditionSet::new("views_databases_unreadable");
    let mut failures = 0;
    while !*stopping.borrow() {
        let wait = match look_around(&views, &mut tasks, &unreadable).await {
            Ok(()) => {
                failures = 0;
                unreadable.recover(ALL_DATABASES, "databases with views are looked for again");
                LOOK_AROUND
            }
            Err(error) => {
                failures += 1;
                if failures > FAILURES_PASSING {
                    let message = "cannot look for databases with views; retrying";
                    unreadable.fail(ALL_DATABASES, &error, message);
                }
                AGAIN
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = views.inner.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    for (database, mut task) in tasks {
        match tokio::time::timeout(STOP_MAX, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, database, "the keeper of views ended badly"),
            // What it was at is rolled back, and done again at the next start.
            Err(_) => task.abort(),
        }
    }
}

async fn look_around(
    views: &Views,
    tasks: &mut BTreeMap<String, JoinHandle<()>>,
    unreadable: &ConditionSet,
) -> Result<(), ViewsError> {
    tasks.retain(|_, task| !task.is_finished());
    let databases = views.inner.shared.databases.names().await?;
    let is_there = |name: &str| databases.iter().any(|database| database == name);
    unreadable.retain(|subject| subject == ALL_DATABASES || is_there(subject));
    for database in databases {
        if tasks.contains_key(&database) {
            continue;
        }
        let keeper = views.keeper(&database);
        // A session is kept where there are views only: others could not drop their database.
        let is_installed = match keeper.look().await {
            Ok(is_installed) => is_installed,
            Err(ViewsError::Postgres(error)) if is_gone(&error) => continue,
            Err(error) => {
                let message = "cannot see whether a database has views; retrying";
                unreadable.fail(&database, &error, message);
                continue;
            }
        };
        unreadable.recover(&database, "the database can be read again");
        if is_installed {
            let stopping = views.inner.stopping.subscribe();
            tasks.insert(database, tokio::spawn(keep(keeper, stopping)));
        }
    }
    Ok(())
}
