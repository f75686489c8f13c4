//! Looks for databases that have views, and has each of them kept.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use egret_base::condition::ConditionSet;
use egret_postgres::database_watch::{DatabaseVisitor, DatabaseWatch};
use egret_postgres::databases::is_gone;
use tokio::task::JoinHandle;

use super::keep;
use super::keeper::lock;
use crate::api::Views;
use crate::error::ViewsError;

/// How long a refresh that is under way may take to end when everything stops.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The databases whose views are kept.
struct KeptDatabases {
    views: Views,
    tasks: Mutex<BTreeMap<String, JoinHandle<()>>>,
}

impl DatabaseVisitor for KeptDatabases {
    type Error = ViewsError;

    /// Has a database with views kept that is not. A session stays open where there are views only: others could not drop
    /// their database.
    async fn visit(&self, database: &str) -> Result<(), ViewsError> {
        let is_kept = lock(&self.tasks)
            .get(database)
            .is_some_and(|task| !task.is_finished());
        if is_kept {
            return Ok(());
        }
        let keeper = self.views.keeper(database);
        let is_installed = match keeper.look().await {
            Err(ViewsError::Postgres(error)) if is_gone(&error) => false,
            is_installed => is_installed?,
        };
        if is_installed {
            let stopping = self.views.inner.stopping.subscribe();
            let task = tokio::spawn(keep(keeper, stopping));
            lock(&self.tasks).insert(database.to_owned(), task);
        }
        Ok(())
    }
}

/// Looks for databases with views and has them kept, until everything stops.
pub(crate) async fn watch_over(views: Views) {
    let stopping = views.inner.stopping.subscribe();
    let faults = ConditionSet::new("views_databases_unreadable");
    let databases = views.inner.shared.databases.clone();
    let watch = DatabaseWatch::new(databases, faults, "views");
    let kept = KeptDatabases {
        views,
        tasks: Mutex::default(),
    };
    let changed = &kept.views.inner.changed;
    watch.run(&kept, Duration::ZERO, changed, stopping).await;
    let tasks = std::mem::take(&mut *lock(&kept.tasks));
    for (database, mut task) in tasks {
        match tokio::time::timeout(STOP_MAX, &mut task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, database, "the keeper of views ended badly"),
            // What it was at is rolled back, and done again at the next start.
            Err(_) => task.abort(),
        }
    }
}
