//! Which database a view is in.

use std::sync::Arc;

use egret_base::condition;
use egret_postgres::PostgresError;
use egret_postgres::databases::is_gone;

use super::{Address, Views};
use crate::error::ViewsError;
use crate::model::{ViewName, ViewReport};
use crate::store::registry::{self, Record};
use crate::store::report;
use crate::worker::keeper::{Keeper, lock};
use crate::worker::session::Session;

/// A view that was found.
pub(super) struct Found {
    pub keeper: Arc<Keeper>,
    pub session: Session,
    pub record: Record,
}

impl Views {
    /// Shows a view that was changed, with its keeper's knowledge of it renewed.
    pub(super) async fn changed(&self, found: Found) -> Result<ViewReport, ViewsError> {
        found.keeper.give_back(found.session);
        self.show_changed(&found.keeper, &found.record).await
    }

    /// See [`Self::changed`].
    pub(super) async fn show_changed(
        &self,
        keeper: &Keeper,
        record: &Record,
    ) -> Result<ViewReport, ViewsError> {
        keeper.unload(record.id);
        keeper.tell();
        self.show_of(keeper, &record.name).await
    }

    pub(crate) fn keeper(&self, database: &str) -> Arc<Keeper> {
        let mut keepers = lock(&self.inner.keepers);
        let keeper = keepers.entry(database.to_owned()).or_insert_with(|| {
            let shared = self.inner.shared.clone();
            Arc::new(Keeper::new(database, shared))
        });
        keeper.clone()
    }

    /// The views of a database, or of all databases in which sessions can be opened, in order.
    ///
    /// # Errors
    /// The server's.
    pub async fn list(&self, database: Option<&str>) -> Result<Vec<ViewReport>, ViewsError> {
        Ok(self.list_known(database).await?.0)
    }

    /// The same, and whether these are all that there are.
    ///
    /// # Errors
    /// Those of [`Self::list`].
    pub async fn list_known(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<ViewReport>, bool), ViewsError> {
        let _permit = self.admit().await?;
        let mut all = Vec::new();
        let (keepers, are_all) = self.installed(database).await?;
        for keeper in keepers {
            let session = keeper.session().await?;
            all.extend(
                report::reports(&session.client, &keeper.database, |view| {
                    keeper.latest(view)
                })
                .await?,
            );
            keeper.give_back(session);
        }
        Ok((all, are_all))
    }

    /// The keepers of databases with views, of one if that is named, and whether it is known of all databases that have some.
    pub(super) async fn installed(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<Arc<Keeper>>, bool), ViewsError> {
        let databases = &self.inner.shared.databases;
        let names = match database {
            Some(name) => vec![databases.choose(Some(name)).await?],
            None => databases.names().await?,
        };
        let mut are_known = database.is_some() || databases.closed().await?.is_empty();
        let mut all = Vec::new();
        for name in names {
            let keeper = self.keeper(&name);
            match keeper.look().await {
                Ok(true) => all.push(keeper),
                Ok(false) => {}
                Err(ViewsError::Postgres(error)) if is_gone(&error) => {}
                Err(ViewsError::Postgres(PostgresError::NoSession { .. }))
                    if database.is_none() =>
                {
                    are_known = false;
                }
                // What somebody else has made is not read, and no view of Egret's.
                Err(ViewsError::Postgres(error @ PostgresError::ForeignSchema { .. }))
                    if database.is_none() =>
                {
                    let message = "the views of a database are not read";
                    condition::occur("views_schema_foreign", &keeper.database, &error, message);
                }
                // What is not known is not left out silently: views of other databases are found by their database.
                Err(error) => return Err(error),
            }
        }
        Ok((all, are_known))
    }

    /// A view that was seen a moment ago, in one database only.
    pub(super) fn known(&self, at: &Address) -> Option<(Arc<Keeper>, Record)> {
        let keepers = lock(&self.inner.keepers);
        let is_asked = |keeper: &&Arc<Keeper>| {
            let database = at.database.as_ref();
            keeper.is_installed() && database.is_none_or(|name| *name == keeper.database)
        };
        let mut asked = keepers.values().filter(is_asked);
        let (keeper, is_alone) = (asked.next()?, asked.next().is_none());
        let record = keeper.known.view_named(&at.name).filter(|_| is_alone)?;
        Some((keeper.clone(), record))
    }

    pub(super) async fn find(&self, at: &Address) -> Result<Found, ViewsError> {
        // Where views are known to be there are sessions already.
        let known: Vec<Arc<Keeper>> = lock(&self.inner.keepers)
            .values()
            .filter(|keeper| keeper.is_installed())
            .filter(|keeper| {
                at.database
                    .as_ref()
                    .is_none_or(|name| *name == keeper.database)
            })
            .cloned()
            .collect();
        let is_named = at.database.is_some();
        let (mut all, mut are_known) = among(known, &at.name, is_named).await?;
        if all.is_empty() {
            // A database that takes no sessions may have a view of this name.
            let (installed, are_all) = self.installed(at.database.as_deref()).await?;
            let (found, are_reached) = among(installed, &at.name, is_named).await?;
            (all, are_known) = (found, are_known && are_all && are_reached);
        }
        let name = at.name.to_string();
        match (all.pop(), all.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(last), false) => {
                let all = all.iter().chain([&last]);
                let databases = all.map(|found| found.keeper.database.clone()).collect();
                Err(ViewsError::Ambiguous { name, databases })
            }
            (None, _) if are_known => Err(ViewsError::NotFound { name }),
            (None, _) => Err(ViewsError::NotKnown { name }),
        }
    }
}

/// The views of a name in databases, and whether all of these could be looked into. One that `is_named` must be.
async fn among(
    keepers: Vec<Arc<Keeper>>,
    name: &ViewName,
    is_named: bool,
) -> Result<(Vec<Found>, bool), ViewsError> {
    let mut all = Vec::new();
    let mut are_reached = true;
    for keeper in keepers {
        let mut session = match keeper.session().await {
            Err(ViewsError::Postgres(error)) if is_gone(&error) => {
                keeper.leave().await;
                continue;
            }
            // It may be in another one.
            Err(ViewsError::Postgres(PostgresError::NoSession { .. })) if !is_named => {
                are_reached = false;
                continue;
            }
            session => session?,
        };
        let found = match keeper.known.table() {
            Some(table) => {
                let Session { client, statements } = &mut session;
                let found = registry::find_in(client, statements, table, name).await;
                // Where the table is gone, that is seen in a moment.
                found.ok().flatten()
            }
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None if keeper.known.inspect(&session.client).await?.is_none() => {
                keeper.leave().await;
                continue;
            }
            None => {
                let Session { client, statements } = &mut session;
                registry::find(client, statements, name).await?
            }
        };
        match found {
            Some(record) => all.push(Found {
                keeper,
                session,
                record,
            }),
            None => keeper.give_back(session),
        }
    }
    Ok((all, are_reached))
}
