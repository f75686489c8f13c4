//! The refresh loop of one database: refreshes the components that are due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::rhythm::CronSchedule;
use egret_postgres::databases::is_gone;
use egret_postgres::tokio_postgres::error::SqlState;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use super::component::Component;
use super::idle::{self, IdleDetector};
use super::refresh_result::RefreshResult;
use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use super::{requests, task_publisher};
use crate::core::scheduling::{RefreshTiming, components};
use crate::error::ViewsError;
use crate::metrics::{DatabaseLabels, StateLabels};
use crate::model::{Mode, State};
use crate::store::record::Record;
use crate::store::{captures, registry};

/// How often the list of views is read again if no change was announced.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Longest wait between two checks of what is due.
const TICK_MAX: Duration = Duration::from_millis(250);

/// Least interval at which a component is refreshed although its tables have no changes, to notice
/// new partitions and rewritten tables.
const INSPECT: Duration = Duration::from_secs(5);

/// With many components that interval is this long for each of them.
const INSPECT_EACH: Duration = Duration::from_millis(400);

/// Pause after an error, times the number of errors in a row.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the views of a database fresh, until the engine stops or the database has none any more.
pub(super) async fn run(worker: Arc<ViewRefreshWorker>, mut stopping: Receiver<bool>) {
    let database = worker.database.as_str();
    let mut refresh_loop = RefreshLoop {
        worker: worker.clone(),
        components: Vec::new(),
        tasks: JoinSet::new(),
        read_at: None,
        idle: IdleDetector::default(),
        unforgotten: Condition::new("views_changes_not_forgotten", database),
        has_immediate: false,
    };
    let failing = Condition::new("views_not_kept_fresh", database);
    let serving = tokio::spawn(requests::run(worker.clone(), stopping.clone()));
    let publishing = tokio::spawn(task_publisher::serve(worker.clone(), stopping.clone()));
    let mut failures = 0_u32;
    while !*stopping.borrow() {
        worker.collect_locked();
        let wait = match refresh_loop.run_turn().await {
            Ok(NextWake::In(wait)) => {
                failures = 0;
                failing.recover("the refreshes of a database run again");
                wait
            }
            Ok(NextWake::Never) => break,
            Err(ViewsError::Postgres(error)) if is_gone(&error) => break,
            Err(error) => {
                failures += 1;
                failing.fail(&error, "cannot run the refreshes of a database; retrying");
                AGAIN * failures.min(15)
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = worker.changed.notified() => refresh_loop.read_at = None,
            Some(result) = refresh_loop.tasks.join_next() => refresh_loop.note_ended(result.ok()),
            () = tokio::time::sleep(wait) => {}
        }
    }
    while let Some(result) = refresh_loop.tasks.join_next().await {
        refresh_loop.note_ended(result.ok());
    }
    let is_removed = !*stopping.borrow();
    if is_removed {
        serving.abort();
        publishing.abort();
    }
    _ = serving.await;
    _ = publishing.await;
    if is_removed {
        worker.close().await;
    }
}

enum NextWake {
    /// Something is due after this wait.
    In(Duration),
    /// The engine is not installed in the database any more.
    Never,
}

struct RefreshLoop {
    worker: Arc<ViewRefreshWorker>,
    components: Vec<Component>,
    tasks: JoinSet<RefreshTaskResult>,
    /// When the list of views was read; none: it is to be read again.
    read_at: Option<Instant>,
    idle: IdleDetector,
    unforgotten: Condition,
    /// Whether a view is in mode immediate.
    has_immediate: bool,
}

/// Result of a refresh: the first view of the component, the duration, whether it failed, and the
/// error if it failed for all views.
struct RefreshTaskResult {
    first: Option<i64>,
    took: Duration,
    is_failed: bool,
    error: Option<ViewsError>,
}

impl RefreshLoop {
    async fn run_turn(&mut self) -> Result<NextWake, ViewsError> {
        let mut session = self.worker.session().await?;
        let next = self.run_turn_with(&mut session).await;
        if next.is_ok() {
            self.worker.return_session(session);
        }
        next
    }

    async fn run_turn_with(&mut self, session: &mut Session) -> Result<NextWake, ViewsError> {
        let now = Instant::now();
        let now_ms = self.worker.context.clock.now().as_millis_unsigned();
        for component in &mut self.components {
            component.follow_clock(now_ms);
        }
        let is_due = |component: &Component| component.is_due(now, now_ms);
        let is_read = self.read_at.is_some_and(|at| at.elapsed() <= LOOK_AGAIN);
        if is_read && !self.components.iter().any(is_due) {
            return Ok(self.next_wake(now));
        }
        let server_state = idle::read_server_state(session).await?;
        let is_idle = self.read_at.is_some() && self.idle.is_idle_since(&server_state);
        match (is_read, is_idle) {
            (true, _) => {}
            (false, true) => self.read_at = Some(now),
            (false, false) => {
                let table = self.worker.catalog.inspect(&session.client).await?;
                if table.is_none() {
                    return Ok(NextWake::Never);
                }
                self.worker.set_installed();
                self.read_components(session).await?;
            }
        }
        let changed = if is_idle {
            BTreeSet::new()
        } else {
            match self.changed_captures(session).await? {
                Some(changed) => changed,
                None => return Ok(NextWake::In(TICK_MAX)),
            }
        };
        if !is_idle {
            self.find_unmaintained(session).await?;
        }
        let is_resting = |component: &Component| component.is_resting() && !component.is_running;
        if changed.is_empty() && self.components.iter().all(is_resting) {
            self.idle.note_idle(server_state);
        }
        self.start_refreshes(&changed, is_idle, now, now_ms);
        Ok(self.next_wake(now))
    }

    /// Starts the refreshes that are due. `changed` are the tables for changes that have rows.
    fn start_refreshes(
        &mut self,
        changed: &BTreeSet<i64>,
        is_idle: bool,
        now: Instant,
        now_ms: u64,
    ) {
        let inspect = INSPECT.max(INSPECT_EACH * self.components.len() as u32);
        for component in &mut self.components {
            if !component.is_due(now, now_ms) {
                continue;
            }
            let mut captures = component.captures.iter();
            let is_changed = captures.any(|capture| changed.contains(capture));
            let is_inspected = is_idle || component.inspected.elapsed() < inspect;
            if !is_changed && component.is_resting() && is_inspected {
                // Components without work get a common wake-up time, so that they are checked
                // together.
                component.schedule_next(now, Duration::ZERO, &self.worker.context);
                let due = component.due;
                component.due = due.map(|due| self.idle.align_wake(now, due));
                continue;
            }
            component.is_running = true;
            component.inspected = now;
            component.refreshes += 1;
            let (worker, views) = (self.worker.clone(), component.views.clone());
            let number = component.refreshes;
            self.tasks
                .spawn(refresh_component(worker, views, number, is_changed));
        }
    }

    /// Numbers of the tables for changes that have rows; none if one of the tables has just been
    /// dropped, so that the list of views must be read again.
    async fn changed_captures(
        &mut self,
        session: &mut Session,
    ) -> Result<Option<BTreeSet<i64>>, ViewsError> {
        let captures: BTreeSet<i64> = self
            .components
            .iter()
            .flat_map(|component| &component.captures)
            .copied()
            .collect();
        let Session { client, statements } = session;
        match captures::with_changes(client, statements, &captures).await {
            Err(ViewsError::Statement(error))
                if error.code() == Some(&SqlState::UNDEFINED_TABLE) =>
            {
                self.read_at = None;
                Ok(None)
            }
            waiting => Ok(Some(waiting?)),
        }
    }

    /// Has components rebuilt whose view in mode immediate refuses to be read.
    async fn find_unmaintained(&mut self, session: &mut Session) -> Result<(), ViewsError> {
        if !self.has_immediate {
            return Ok(());
        }
        let Session { client, statements } = session;
        let unmaintained = registry::list_unmaintained(client, statements).await?;
        for component in &mut self.components {
            component.is_new |= unmaintained
                .iter()
                .any(|view| component.views.contains(view));
        }
        Ok(())
    }

    /// The wait until something is due.
    fn next_wake(&self, now: Instant) -> NextWake {
        let waits = self
            .components
            .iter()
            .filter(|component| !component.is_running);
        let now_ms = self.worker.context.clock.now().as_millis_unsigned();
        let waits = waits
            .flat_map(|component| {
                let until_due = component.due.map(|due| due.saturating_duration_since(now));
                let until_tick = component.tick_ms.map(|at_ms| at_ms.saturating_sub(now_ms));
                [until_due, until_tick.map(Duration::from_millis)]
            })
            .flatten();
        NextWake::In(waits.min().unwrap_or(TICK_MAX).min(TICK_MAX))
    }

    /// Reads the list of views and updates the components.
    async fn read_components(&mut self, session: &mut Session) -> Result<(), ViewsError> {
        let records = self.worker.catalog.views(session).await?;
        self.count_states(&records);
        let captures = captures::list_readers(&session.client).await?;
        match captures::read_sizes(&session.client).await {
            Ok((bytes, dead_rows)) => self.measure_change_log(bytes, dead_rows),
            // Another session may have locked one of the tables.
            Err(error) => tracing::debug!(%error, "cannot read the sizes of the change tables"),
        }
        let is_kept = |record: &&Record| record.state != State::Suspended;
        let members: Vec<_> = records.iter().filter(is_kept).map(Record::member).collect();
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.components);
        for members in components(&members) {
            let views: Vec<i64> = members.iter().map(|member| member.view).collect();
            let of_views = captures.iter().filter(|(view, _)| views.contains(view));
            let default_lag = self.worker.context.config.default_lag.duration();
            let timing = RefreshTiming::of(&members, default_lag);
            let crons = timing
                .crons
                .iter()
                .filter_map(|cron| CronSchedule::new(cron, "").ok());
            let in_views = |record: &&Record| views.contains(&record.id);
            let has_clock = records
                .iter()
                .filter(in_views)
                .any(|record| record.has_clock);
            let mut component = Component {
                has_clock,
                is_new: records
                    .iter()
                    .filter(in_views)
                    .any(|record| record.snapshot.is_none()),
                captures: of_views.map(|(_, capture)| *capture).collect(),
                crons: crons.collect(),
                failures: 0,
                refreshes: 0,
                due: None,
                tick_ms: None,
                inspected: now,
                is_running: false,
                failing: self.failing_of(&records, &views),
                timing,
                views,
            };
            match before.iter().position(|old| old.views == component.views) {
                Some(place) => {
                    let old = before.swap_remove(place);
                    component.failures = old.failures;
                    component.refreshes = old.refreshes;
                    component.inspected = old.inspected;
                    component.is_running = old.is_running;
                    component.failing = old.failing;
                    if component.timing == old.timing {
                        (component.due, component.tick_ms) = (old.due, old.tick_ms);
                    } else {
                        component.schedule_next(now, Duration::ZERO, &self.worker.context);
                    }
                }
                None => component.schedule_next(now, Duration::ZERO, &self.worker.context),
            }
            self.components.push(component);
        }
        // A component whose set of views has changed is dropped when its refresh ends.
        before.retain(|component| component.is_running);
        self.remove_expired(session, &records).await;
        self.read_at = Some(Instant::now());
        Ok(())
    }

    /// Removes the faults of dropped views, and change sets past their retention.
    async fn remove_expired(&self, session: &Session, records: &[Record]) {
        let is_there = |subject: &str| {
            records
                .iter()
                .any(|record| self.worker.subject(record) == subject)
        };
        self.worker.faults.retain(is_there);
        match self.worker.delete_expired_changes(session).await {
            Ok(true) => self
                .unforgotten
                .recover("old change sets are deleted again"),
            Ok(false) => {}
            Err(error) => {
                let message = "cannot delete old change sets; retrying";
                self.unforgotten.fail(&error, message);
            }
        }
    }

    fn failing_of(&self, records: &[Record], views: &[i64]) -> Condition {
        let first = records
            .iter()
            .find(|record| views.first() == Some(&record.id));
        let name = first.map_or_else(String::new, |record| record.name.to_string());
        let subject = format!("{}: views with {name}", self.worker.database);
        Condition::new("views_refresh_failing", subject)
    }

    fn count_states(&mut self, records: &[Record]) {
        let mut modes = records.iter().map(|record| record.mode);
        self.has_immediate = modes.any(|mode| mode == Mode::Immediate);
        for state in [State::New, State::Active, State::Failing, State::Suspended] {
            let count = records
                .iter()
                .filter(|record| record.state == state)
                .count();
            let views = &self.worker.context.metrics.views;
            let database = self.worker.database.clone();
            let state = state.as_str();
            views
                .get_or_create(&StateLabels { database, state })
                .set(count as i64);
        }
    }

    fn measure_change_log(&self, bytes: i64, dead_rows: i64) {
        let metrics = &self.worker.context.metrics;
        let database = DatabaseLabels {
            database: self.worker.database.clone(),
        };
        let changes_bytes = &metrics.changes_bytes;
        changes_bytes.get_or_create(&database).set(bytes);
        let dead_rows_of = &metrics.changes_dead_rows;
        dead_rows_of.get_or_create(&database).set(dead_rows);
    }

    fn note_ended(&mut self, result: Option<RefreshTaskResult>) {
        let Some(result) = result else {
            // The refresh task panicked (already logged). Forget all components and read the list
            // again.
            self.components.clear();
            self.read_at = None;
            return;
        };
        let mut components = self.components.iter_mut();
        let Some(component) =
            components.find(|component| component.views.first().copied() == result.first)
        else {
            return;
        };
        component.is_running = false;
        component.is_new = false;
        match &result.error {
            Some(error) => {
                let message = "cannot refresh views; retrying";
                component.failing.fail(error, message);
            }
            None => component.failing.recover("views are refreshed again"),
        }
        component.failures = if result.is_failed {
            component.failures + 1
        } else {
            0
        };
        component.schedule_next(Instant::now(), result.took, &self.worker.context);
    }
}

/// Runs one refresh of a component.
async fn refresh_component(
    worker: Arc<ViewRefreshWorker>,
    views: Vec<i64>,
    number: u64,
    is_changed: bool,
) -> RefreshTaskResult {
    let begun = Instant::now();
    let (is_failed, error) = match worker.refresh_due(&views, number).await {
        Ok(results) => {
            let has_applied = |result: &RefreshResult| result.report.outcome != "nothing";
            if is_changed && !results.values().any(has_applied) {
                // The waiting changes are applied, but their removal failed before.
                worker.collect_after(&views);
            }
            let is_failed = |result: &RefreshResult| result.report.error.is_some();
            (results.values().any(is_failed), None)
        }
        Err(error) => (true, Some(error)),
    };
    RefreshTaskResult {
        first: views.first().copied(),
        took: begun.elapsed(),
        is_failed,
        error,
    }
}
