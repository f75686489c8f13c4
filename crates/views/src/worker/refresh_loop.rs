//! The refresh loop of one database: refreshes the components that are due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::rhythm::CronSchedule;
use egret_postgres::databases::is_database_missing;
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
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Longest wait between two checks of what is due.
const WAKE_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Least interval at which a component is refreshed although its tables have no changes, to notice
/// new partitions and rewritten tables.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(5);

/// With many components that interval is this long for each of them.
const INSPECTION_INTERVAL_PER_COMPONENT: Duration = Duration::from_millis(400);

/// Pause after an error, times the number of errors in a row.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Keeps the views of a database fresh, until the engine stops or the database has none any more.
pub(super) async fn run(worker: Arc<ViewRefreshWorker>, mut stopping: Receiver<bool>) {
    let database = worker.database.as_str();
    let mut refresh_loop = RefreshLoop {
        worker: worker.clone(),
        components: Vec::new(),
        tasks: JoinSet::new(),
        list_read_at: None,
        idle: IdleDetector::default(),
        expiry_condition: Condition::new("views_changes_not_forgotten", database),
        has_immediate: false,
    };
    let loop_condition = Condition::new("views_not_kept_fresh", database);
    let requests_task = tokio::spawn(requests::run(worker.clone(), stopping.clone()));
    let publisher_task = tokio::spawn(task_publisher::run(worker.clone(), stopping.clone()));
    let mut failures = 0_u32;
    while !*stopping.borrow() {
        worker.retry_locked_tables();
        let wait = match refresh_loop.run_turn().await {
            Ok(NextWake::In(wait)) => {
                failures = 0;
                loop_condition.recover("the refreshes of a database run again");
                wait
            }
            Ok(NextWake::Never) => break,
            Err(ViewsError::Postgres(error)) if is_database_missing(&error) => break,
            Err(error) => {
                failures += 1;
                loop_condition.fail(&error, "cannot run the refreshes of a database; retrying");
                RETRY_DELAY * failures.min(15)
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = worker.views_changed.notified() => refresh_loop.list_read_at = None,
            Some(result) = refresh_loop.tasks.join_next() => refresh_loop.record_refresh_end(result.ok()),
            () = tokio::time::sleep(wait) => {}
        }
    }
    while let Some(result) = refresh_loop.tasks.join_next().await {
        refresh_loop.record_refresh_end(result.ok());
    }
    let is_uninstalled = !*stopping.borrow();
    if is_uninstalled {
        requests_task.abort();
        publisher_task.abort();
    }
    _ = requests_task.await;
    _ = publisher_task.await;
    if is_uninstalled {
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
    list_read_at: Option<Instant>,
    idle: IdleDetector,
    expiry_condition: Condition,
    /// Whether a view is in mode immediate.
    has_immediate: bool,
}

/// Result of a refresh: the first view of the component, the duration, whether it failed, and the
/// error if it failed for all views.
struct RefreshTaskResult {
    first_view: Option<i64>,
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
            component.adjust_to_clock(now_ms);
        }
        let is_due = |component: &Component| component.is_due(now, now_ms);
        let is_list_fresh = self.list_read_at.is_some_and(|at| at.elapsed() <= POLL_INTERVAL);
        if is_list_fresh && !self.components.iter().any(is_due) {
            return Ok(self.next_wake(now));
        }
        let server_state = idle::read_server_state(session).await?;
        let is_idle = self.list_read_at.is_some() && self.idle.is_idle_since(&server_state);
        match (is_list_fresh, is_idle) {
            (true, _) => {}
            (false, true) => self.list_read_at = Some(now),
            (false, false) => {
                let table = self.worker.catalog.check_registry(&session.client).await?;
                if table.is_none() {
                    return Ok(NextWake::Never);
                }
                self.worker.set_installed();
                self.read_components(session).await?;
            }
        }
        let changed_captures = if is_idle {
            BTreeSet::new()
        } else {
            match self.changed_captures(session).await? {
                Some(changed) => changed,
                None => return Ok(NextWake::In(WAKE_INTERVAL_MAX)),
            }
        };
        if !is_idle {
            self.find_unmaintained(session).await?;
        }
        let is_change_driven =
            |component: &Component| component.is_change_driven() && !component.is_running;
        if changed_captures.is_empty() && self.components.iter().all(is_change_driven) {
            self.idle.note_idle(server_state);
        }
        self.start_refreshes(&changed_captures, is_idle, now, now_ms);
        Ok(self.next_wake(now))
    }

    /// Starts the refreshes that are due. `changed` are the tables for changes that have rows.
    fn start_refreshes(
        &mut self,
        changed_captures: &BTreeSet<i64>,
        is_idle: bool,
        now: Instant,
        now_ms: u64,
    ) {
        let inspection_interval = INSPECTION_INTERVAL
            .max(INSPECTION_INTERVAL_PER_COMPONENT * self.components.len() as u32);
        for component in &mut self.components {
            if !component.is_due(now, now_ms) {
                continue;
            }
            let mut captures = component.captures.iter();
            let is_changed = captures.any(|capture| changed_captures.contains(capture));
            let is_recently_inspected =
                is_idle || component.inspected_at.elapsed() < inspection_interval;
            if !is_changed && component.is_change_driven() && is_recently_inspected {
                // Components without work get a common wake-up time, so that they are checked
                // together.
                component.schedule_next(now, Duration::ZERO, &self.worker.context);
                let due = component.due_at;
                component.due_at = due.map(|due| self.idle.align_wake(now, due));
                continue;
            }
            component.is_running = true;
            component.inspected_at = now;
            component.refreshes += 1;
            let (worker, views) = (self.worker.clone(), component.views.clone());
            let number = component.refreshes;
            self.tasks.spawn(refresh_component(worker, views, number, is_changed));
        }
    }

    /// Numbers of the tables for changes that have rows; none if one of the tables has just been
    /// dropped, so that the list of views must be read again.
    async fn changed_captures(
        &mut self,
        session: &mut Session,
    ) -> Result<Option<BTreeSet<i64>>, ViewsError> {
        let captures: BTreeSet<i64> =
            self.components.iter().flat_map(|component| &component.captures).copied().collect();
        let Session { client, statements } = session;
        match captures::captures_with_changes(client, statements, &captures).await {
            Err(ViewsError::Statement(error))
                if error.code() == Some(&SqlState::UNDEFINED_TABLE) =>
            {
                self.list_read_at = None;
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
            component.is_new |= unmaintained.iter().any(|view| component.views.contains(view));
        }
        Ok(())
    }

    /// The wait until something is due.
    fn next_wake(&self, now: Instant) -> NextWake {
        let waits = self.components.iter().filter(|component| !component.is_running);
        let now_ms = self.worker.context.clock.now().as_millis_unsigned();
        let waits = waits
            .flat_map(|component| {
                let until_due = component.due_at.map(|due| due.saturating_duration_since(now));
                let until_tick = component.next_tick_ms.map(|at_ms| at_ms.saturating_sub(now_ms));
                [until_due, until_tick.map(Duration::from_millis)]
            })
            .flatten();
        NextWake::In(waits.min().unwrap_or(WAKE_INTERVAL_MAX).min(WAKE_INTERVAL_MAX))
    }

    /// Reads the list of views and updates the components.
    async fn read_components(&mut self, session: &mut Session) -> Result<(), ViewsError> {
        let records = self.worker.catalog.read_views(session).await?;
        self.count_states(&records);
        let captures = captures::list_readers(&session.client).await?;
        match captures::read_sizes(&session.client).await {
            Ok((bytes, dead_rows)) => self.measure_change_log(bytes, dead_rows),
            // Another session may have locked one of the tables.
            Err(error) => tracing::debug!(%error, "cannot read the sizes of the change tables"),
        }
        let is_maintained = |record: &&Record| record.state != State::Suspended;
        let members: Vec<_> =
            records.iter().filter(is_maintained).map(Record::component_member).collect();
        let now = Instant::now();
        let mut old_components = std::mem::take(&mut self.components);
        for members in components(&members) {
            let views: Vec<i64> = members.iter().map(|member| member.view).collect();
            let view_captures = captures.iter().filter(|(view, _)| views.contains(view));
            let default_lag = self.worker.context.config.default_lag.duration();
            let timing = RefreshTiming::from_component(&members, default_lag);
            let crons = timing.crons.iter().filter_map(|cron| CronSchedule::new(cron, "").ok());
            let in_views = |record: &&Record| views.contains(&record.id);
            let has_clock = records.iter().filter(in_views).any(|record| record.has_clock);
            let mut component = Component {
                has_clock,
                is_new: records.iter().filter(in_views).any(|record| record.snapshot.is_none()),
                captures: view_captures.map(|(_, capture)| *capture).collect(),
                crons: crons.collect(),
                failures: 0,
                refreshes: 0,
                due_at: None,
                next_tick_ms: None,
                inspected_at: now,
                is_running: false,
                condition: self.new_condition(&records, &views),
                timing,
                views,
            };
            match old_components.iter().position(|old| old.views == component.views) {
                Some(index) => {
                    let old = old_components.swap_remove(index);
                    component.failures = old.failures;
                    component.refreshes = old.refreshes;
                    component.inspected_at = old.inspected_at;
                    component.is_running = old.is_running;
                    component.condition = old.condition;
                    if component.timing == old.timing {
                        (component.due_at, component.next_tick_ms) = (old.due_at, old.next_tick_ms);
                    } else {
                        component.schedule_next(now, Duration::ZERO, &self.worker.context);
                    }
                }
                None => component.schedule_next(now, Duration::ZERO, &self.worker.context),
            }
            self.components.push(component);
        }
        // A component whose set of views has changed is dropped when its refresh ends.
        old_components.retain(|component| component.is_running);
        self.remove_expired(session, &records).await;
        self.list_read_at = Some(Instant::now());
        Ok(())
    }

    /// Removes the faults of dropped views, and change sets past their retention.
    async fn remove_expired(&self, session: &Session, records: &[Record]) {
        let exists = |subject: &str| {
            records.iter().any(|record| self.worker.condition_subject(record) == subject)
        };
        self.worker.faults.retain(exists);
        match self.worker.delete_expired_changes(session).await {
            Ok(true) => self.expiry_condition.recover("old change sets are deleted again"),
            Ok(false) => {}
            Err(error) => {
                let message = "cannot delete old change sets; retrying";
                self.expiry_condition.fail(&error, message);
            }
        }
    }

    fn new_condition(&self, records: &[Record], views: &[i64]) -> Condition {
        let first = records.iter().find(|record| views.first() == Some(&record.id));
        let name = first.map_or_else(String::new, |record| record.name.to_string());
        let subject = format!("{}: views with {name}", self.worker.database);
        Condition::new("views_refresh_failing", subject)
    }

    fn count_states(&mut self, records: &[Record]) {
        let mut modes = records.iter().map(|record| record.mode);
        self.has_immediate = modes.any(|mode| mode == Mode::Immediate);
        for state in [State::New, State::Active, State::Failing, State::Suspended] {
            let count = records.iter().filter(|record| record.state == state).count();
            let views = &self.worker.context.metrics.views;
            let database = self.worker.database.clone();
            let state = state.as_str();
            views.get_or_create(&StateLabels { database, state }).set(count as i64);
        }
    }

    fn measure_change_log(&self, bytes: i64, dead_rows: i64) {
        let metrics = &self.worker.context.metrics;
        let database = DatabaseLabels { database: self.worker.database.clone() };
        let bytes_gauges = &metrics.changes_bytes;
        bytes_gauges.get_or_create(&database).set(bytes);
        let dead_rows_gauges = &metrics.changes_dead_rows;
        dead_rows_gauges.get_or_create(&database).set(dead_rows);
    }

    fn record_refresh_end(&mut self, result: Option<RefreshTaskResult>) {
        let Some(result) = result else {
            // The refresh task panicked (already logged). Forget all components and read the list
            // again.
            self.components.clear();
            self.list_read_at = None;
            return;
        };
        let mut components = self.components.iter_mut();
        let Some(component) =
            components.find(|component| component.views.first().copied() == result.first_view)
        else {
            return;
        };
        component.is_running = false;
        component.is_new = false;
        match &result.error {
            Some(error) => {
                let message = "cannot refresh views; retrying";
                component.condition.fail(error, message);
            }
            None => component.condition.recover("views are refreshed again"),
        }
        component.failures = if result.is_failed { component.failures + 1 } else { 0 };
        component.schedule_next(Instant::now(), result.took, &self.worker.context);
    }
}

/// Runs one refresh of a component.
async fn refresh_component(
    worker: Arc<ViewRefreshWorker>,
    views: Vec<i64>,
    refresh_number: u64,
    is_changed: bool,
) -> RefreshTaskResult {
    let started_at = Instant::now();
    let (is_failed, error) = match worker.refresh_due_component(&views, refresh_number).await {
        Ok(results) => {
            let has_applied = |result: &RefreshResult| result.report.outcome != "nothing";
            if is_changed && !results.values().any(has_applied) {
                // The waiting changes are applied, but their removal failed before.
                worker.start_gc_of_views(&views);
            }
            let is_failed = |result: &RefreshResult| result.report.error.is_some();
            (results.values().any(is_failed), None)
        }
        Err(error) => (true, Some(error)),
    };
    RefreshTaskResult {
        first_view: views.first().copied(),
        took: started_at.elapsed(),
        is_failed,
        error,
    }
}
