//! Removes changes that have been read, behind the backs of those who wait for a refresh.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::keeper::{Keeper, lock};
use super::session::Session;
use crate::core::capture::Captured;
use crate::error::ViewsError;
use crate::store::captures::{self, Space};
use crate::store::segments::LockWait;

/// How soon the space of a table is tried to be given back again, whether there is a refresh or not. Doubled with each attempt, …
const PAUSE: Duration = Duration::from_millis(500);

/// … up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// After so many attempts that have found the table locked, those that no refresh makes wait for the lock.
const MISSES_MAX: u32 = 3;

/// Tables of which changes have been read.
#[derive(Default)]
pub struct Backlog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    tables: BTreeMap<i64, Captured>,
    /// Those whose space could not be given back.
    locked: BTreeMap<i64, LockedTable>,
    /// Whether somebody is at it.
    is_worked_on: bool,
    /// What this is done in: others keep the sessions that know their statements.
    session: Option<Session>,
}

/// A table for changes that is empty and whose space could not be given back: other sessions had locked it. Where refreshes follow
/// upon each other without a pause, one of them always has.
struct LockedTable {
    captured: Captured,
    misses: u32,
    pause: Duration,
    due: Instant,
    /// Whether the next attempt waits for the lock. Those after a refresh do not: there may be many, and writers wait behind.
    waits: bool,
}

impl LockedTable {
    fn new(captured: &Captured, now: Instant) -> Self {
        Self {
            captured: captured.clone(),
            misses: 0,
            pause: PAUSE,
            due: now + PAUSE,
            waits: false,
        }
    }
}

impl Backlog {
    /// The tables whose space is to be given back now, whether there is a refresh or not.
    fn take_due(&self, now: Instant) -> Vec<Captured> {
        let mut inner = lock(&self.0);
        let due = inner.locked.values_mut().filter(|table| table.due <= now);
        due.map(|table| {
            table.pause = (table.pause * 2).min(PAUSE_MAX);
            table.due = now + table.pause;
            table.waits = table.misses >= MISSES_MAX;
            table.captured.clone()
        })
        .collect()
    }

    /// How long the attempt that begins now waits for the lock on a table.
    fn wait(&self, id: i64) -> LockWait {
        let mut inner = lock(&self.0);
        let table = inner.locked.get_mut(&id);
        if table.is_some_and(|table| std::mem::take(&mut table.waits)) {
            LockWait::Brief
        } else {
            LockWait::None
        }
    }

    /// Notes what became of the space of a table.
    fn note(&self, captured: &Captured, space: Space, now: Instant) {
        let mut inner = lock(&self.0);
        match space {
            Space::Free => {
                inner.locked.remove(&captured.id);
            }
            Space::Locked => {
                let table = inner.locked.entry(captured.id);
                let table = table.or_insert_with(|| LockedTable::new(captured, now));
                table.misses = table.misses.saturating_add(1);
            }
        }
    }

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

    /// Closes the session that is kept.
    pub(super) fn close_session(&self) {
        lock(&self.0).session = None;
    }
}

impl Keeper {
    /// Has what has been read of these tables removed, soon, where nobody needs it any more.
    pub fn tidy<'a>(self: &Arc<Self>, tables: impl Iterator<Item = &'a Captured>) {
        if self.backlog.add(tables) {
            tokio::spawn(tidy(self.clone()));
        }
    }

    /// Tries again, where that is due, to give back the space of tables that were locked.
    pub fn tidy_locked(self: &Arc<Self>) {
        let due = self.backlog.take_due(Instant::now());
        if !due.is_empty() {
            self.tidy(due.iter());
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
                // What is left is removed after the next refresh, or when it is due again.
                tracing::debug!(%error, database, "changes that were read could not be removed");
                None
            }
        };
    }
    if !keeper.is_installed() {
        keeper.backlog.close_session();
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
    let mut failed = Ok(());
    for captured in tables {
        let wait = keeper.backlog.wait(captured.id);
        let forgotten = captures::forget(client, statements, captured, recording, wait).await;
        // A table that is not there any more keeps nothing of others.
        match forgotten {
            Ok(space) => keeper.backlog.note(captured, space, Instant::now()),
            Err(error) => failed = Err(error),
        }
    }
    failed.map(|()| session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_table_is_tried_again_by_itself_and_waited_for_in_the_end() {
        let backlog = Backlog::default();
        let captured = Captured {
            id: 7,
            columns: Vec::new(),
            of: None,
        };
        let mut now = Instant::now();
        backlog.note(&captured, Space::Locked, now);
        assert_eq!(backlog.take_due(now), []);
        let mut pause = PAUSE;
        for misses in 1..20 {
            now += pause - Duration::from_millis(1);
            assert_eq!(backlog.take_due(now), []);
            now += Duration::from_millis(1);
            assert_eq!(backlog.take_due(now), std::slice::from_ref(&captured));
            let waits = misses >= MISSES_MAX;
            assert_eq!(backlog.wait(7) == LockWait::Brief, waits, "{misses}");
            // One after a refresh, in between, waits for nothing.
            assert_eq!(backlog.wait(7), LockWait::None);
            backlog.note(&captured, Space::Locked, now);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        backlog.note(&captured, Space::Free, now);
        assert_eq!(backlog.take_due(now + PAUSE_MAX), []);
        assert_eq!(backlog.wait(7), LockWait::None);
    }
}
