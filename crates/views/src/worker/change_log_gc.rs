//! Removes applied changes in the background, so that no refresh waits for it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use egret_base::sync::lock;

use super::session::Session;
use crate::core::capture::TableCapture;
use crate::store::captures::TruncateOutcome;
use crate::store::locks::LockWait;

/// Pause before the second attempt to free the space of a locked table; it doubles each time.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Longest pause between two attempts to free the space of a locked table.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Failed attempts after which those that are made by the timer wait for the lock.
const ATTEMPTS_WITHOUT_WAIT_MAX: u32 = 3;

/// Tables for changes with applied rows that are to be removed.
#[derive(Default)]
pub struct ChangeLogGc(Mutex<ChangeLogGcState>);

#[derive(Default)]
struct ChangeLogGcState {
    tables: BTreeMap<i64, TableCapture>,
    /// Tables that were locked when their space was to be freed.
    locked: BTreeMap<i64, LockedTable>,
    /// Whether a task is removing changes.
    is_task_running: bool,
    /// A session of its own: those of refreshes keep their prepared statements.
    session: Option<Session>,
}

/// An empty table for changes whose space could not be freed, since other sessions had locked it.
/// Under a continuous load of refreshes, one of them always holds a lock.
struct LockedTable {
    capture: TableCapture,
    failed_attempts: u32,
    pause: Duration,
    due_at: Instant,
    /// Whether the next attempt waits for the lock. Attempts after a refresh do not: there may be
    /// many, and writers queue behind them.
    waits_for_lock: bool,
}

impl LockedTable {
    fn new(capture: &TableCapture, now: Instant) -> Self {
        Self {
            capture: capture.clone(),
            failed_attempts: 0,
            pause: RETRY_PAUSE,
            due_at: now + RETRY_PAUSE,
            waits_for_lock: false,
        }
    }
}

impl ChangeLogGc {
    /// The locked tables whose next attempt is due by the timer.
    pub(super) fn take_due(&self, now: Instant) -> Vec<TableCapture> {
        let mut inner = lock(&self.0);
        let due = inner.locked.values_mut().filter(|table| table.due_at <= now);
        due.map(|table| {
            table.pause = (table.pause * 2).min(RETRY_PAUSE_MAX);
            table.due_at = now + table.pause;
            table.waits_for_lock = table.failed_attempts >= ATTEMPTS_WITHOUT_WAIT_MAX;
            table.capture.clone()
        })
        .collect()
    }

    /// How long the attempt that starts now waits for the lock on a table.
    pub(super) fn lock_wait(&self, id: i64) -> LockWait {
        let mut inner = lock(&self.0);
        let table = inner.locked.get_mut(&id);
        if table.is_some_and(|table| std::mem::take(&mut table.waits_for_lock)) {
            LockWait::Brief
        } else {
            LockWait::None
        }
    }

    /// Records whether the space of a table could be freed.
    pub(super) fn record_outcome(
        &self,
        capture: &TableCapture,
        outcome: TruncateOutcome,
        now: Instant,
    ) {
        let mut inner = lock(&self.0);
        match outcome {
            TruncateOutcome::Free => {
                inner.locked.remove(&capture.id);
            }
            TruncateOutcome::Locked => {
                let table = inner.locked.entry(capture.id);
                let table = table.or_insert_with(|| LockedTable::new(capture, now));
                table.failed_attempts = table.failed_attempts.saturating_add(1);
            }
        }
    }

    /// Adds tables. Returns whether a task must be started for them.
    pub(super) fn add<'a>(&self, tables: impl Iterator<Item = &'a TableCapture>) -> bool {
        let mut inner = lock(&self.0);
        let tables = tables.map(|capture| (capture.id, capture.clone()));
        inner.tables.extend(tables);
        let needs_task = !inner.is_task_running && !inner.tables.is_empty();
        inner.is_task_running |= needs_task;
        needs_task
    }

    /// The next tables with a session for them; none ends the task and keeps the session.
    pub(super) fn take_next(
        &self,
        session: Option<Session>,
    ) -> Option<(Vec<TableCapture>, Option<Session>)> {
        let mut inner = lock(&self.0);
        if inner.tables.is_empty() {
            inner.is_task_running = false;
            inner.session = session;
            return None;
        }
        let tables = std::mem::take(&mut inner.tables).into_values().collect();
        Some((tables, session.or_else(|| inner.session.take())))
    }

    /// Forgets the tables that are to be cleaned: their numbers may be of others from here on.
    pub(super) fn clear_tables(&self) {
        let mut inner = lock(&self.0);
        inner.tables.clear();
        inner.locked.clear();
    }

    /// Closes the idle session.
    pub(super) fn close_session(&self) {
        lock(&self.0).session = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_table_is_retried_by_timer_and_finally_waits_for_its_lock() {
        let gc = ChangeLogGc::default();
        let capture = TableCapture { id: 7, columns: Vec::new(), view: None };
        let mut now = Instant::now();
        gc.record_outcome(&capture, TruncateOutcome::Locked, now);
        assert_eq!(gc.take_due(now), []);
        let mut pause = RETRY_PAUSE;
        for failed_attempts in 1..20 {
            now += pause - Duration::from_millis(1);
            assert_eq!(gc.take_due(now), []);
            now += Duration::from_millis(1);
            assert_eq!(gc.take_due(now), std::slice::from_ref(&capture));
            let waits = failed_attempts >= ATTEMPTS_WITHOUT_WAIT_MAX;
            assert_eq!(gc.lock_wait(7) == LockWait::Brief, waits, "{failed_attempts}");
            // An attempt after a refresh, in between, does not wait.
            assert_eq!(gc.lock_wait(7), LockWait::None);
            gc.record_outcome(&capture, TruncateOutcome::Locked, now);
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
        gc.record_outcome(&capture, TruncateOutcome::Free, now);
        assert_eq!(gc.take_due(now + RETRY_PAUSE_MAX), []);
        assert_eq!(gc.lock_wait(7), LockWait::None);
    }
}
