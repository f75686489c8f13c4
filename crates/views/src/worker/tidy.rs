//! Removes changes that have been read, behind the backs of those who wait for a refresh.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::keeper::{Keeper, lock};
use super::session::Session;
use crate::core::capture::Captured;
use crate::error::ViewsError;
use crate::store::captures;

/// Tables of which changes have been read.
#[derive(Default)]
pub struct Backlog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    tables: BTreeMap<i64, Captured>,
    /// Whether somebody is at it.
    is_worked_on: bool,
    /// What this is done in: others keep the sessions that know their statements.
    session: Option<Session>,
}

impl Backlog {
    /// Adds tables; says whether somebody is to be sent.
    fn add<'a>(&self, tables: impl Iterator<Item = &'a Captured>) -> bool {
        let mut inner = lock(&self.0);
        let tables = tables.map(|captured| (captured.id, captured.clone()));
        inner.tables.extend(tables);
        let is_needed = !inner.is_worked_on && !inner.tables.is_empty();
        inner.is_worked_on |= is_needed;
        is_needed
    }

    /// What is to be done next, and in what session. The one that is given back is kept where there is nothing.
    fn next(&self, session: Option<Session>) -> Option<(Vec<Captured>, Option<Session>)> {
        let mut inner = lock(&self.0);
        if inner.tables.is_empty() {
            inner.is_worked_on = false;
            inner.session = session;
            return None;
        }
        let tables = std::mem::take(&mut inner.tables).into_values().collect();
        Some((tables, session.or_else(|| inner.session.take())))
    }
}

impl Keeper {
    /// Has what has been read of these tables removed, soon, where nobody needs it any more.
    pub fn tidy<'a>(self: &Arc<Self>, tables: impl Iterator<Item = &'a Captured>) {
        if self.backlog.add(tables) {
            tokio::spawn(tidy(self.clone()));
        }
    }
}

async fn tidy(keeper: Arc<Keeper>) {
    let mut given_back = None;
    while let Some((tables, session)) = keeper.backlog.next(given_back) {
        given_back = match tidy_up(&keeper, &tables, session).await {
            Ok(session) => Some(session),
            Err(error) => {
                let database = &keeper.database;
                // What is left is removed after the next refresh.
                tracing::debug!(%error, database, "changes that were read could not be removed");
                None
            }
        };
    }
}

async fn tidy_up(
    keeper: &Keeper,
    tables: &[Captured],
    session: Option<Session>,
) -> Result<Session, ViewsError> {
    let mut session = match session.filter(|session| !session.client.is_closed()) {
        Some(session) => session,
        None => keeper.session().await?,
    };
    let recording = keeper.shared.config.recording();
    let Session { client, statements } = &mut session;
    captures::forget(client, statements, tables, recording).await?;
    Ok(session)
}
