//! Keeps views fresh: finds the databases that have views, and refreshes what is due in each.

mod failures;
pub(crate) mod feed;
mod hand_over;
pub(crate) mod keeper;
mod known;
mod quiet;
mod requests;
pub(crate) mod session;
mod tidy;
mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::rhythm::Rhythm;
use egret_postgres::databases::is_gone;
use egret_postgres::tokio_postgres::error::SqlState;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use self::keeper::{Keeper, member};
use self::quiet::Quiet;
use self::requests::serve;
use self::session::Session;
pub(crate) use self::watch::watch_over;
use crate::core::pace::{Pace, components};
use crate::error::ViewsError;
use crate::metrics::{InDatabase, InState};
use crate::model::{RefreshReport, State};
use crate::store::captures;
use crate::store::registry::Record;

/// How often the list of views is read again when nobody told of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How often what is due is looked at, at least.
const TICK_MAX: Duration = Duration::from_millis(250);

/// How often a view whose tables have no changes is looked at all the same: whether they got partitions, or were rewritten. Where there
/// are many of them, …
const INSPECT: Duration = Duration::from_secs(5);

/// … no more often than one in so long.
const INSPECT_EACH: Duration = Duration::from_millis(400);

/// How long it is waited after an interruption.
const AGAIN: Duration = Duration::from_secs(2);

/// Keeps the views of a database fresh, until everything stops or there are none any more.
async fn keep(keeper: Arc<Keeper>, mut stopping: Receiver<bool>) {
    let database = keeper.database.as_str();
    let mut keeping = Keeping {
        keeper: keeper.clone(),
        components: Vec::new(),
        tasks: JoinSet::new(),
        read_at: None,
        quiet: Quiet::default(),
        unforgotten: Condition::new("views_changes_not_forgotten", database),
    };
    let failing = Condition::new("views_not_kept_fresh", database);
    let requests = tokio::spawn(serve(keeper.clone(), stopping.clone()));
    let handing_over = tokio::spawn(hand_over::serve(keeper.clone(), stopping.clone()));
    let mut failures = 0_u32;
    while !*stopping.borrow() {
        keeper.tidy_locked();
        let wait = match keeping.go_on().await {
            Ok(Next::In(wait)) => {
                failures = 0;
                failing.recover("views are kept fresh again");
                wait
            }
            Ok(Next::Never) => break,
            Err(ViewsError::Postgres(error)) if is_gone(&error) => break,
            Err(error) => {
                failures += 1;
                failing.fail(&error, "views cannot be kept fresh; retrying");
                AGAIN * failures.min(15)
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = keeper.changed.notified() => keeping.read_at = None,
            Some(done) = keeping.tasks.join_next() => keeping.ended(done.ok()),
            () = tokio::time::sleep(wait) => {}
        }
    }
    while let Some(done) = keeping.tasks.join_next().await {
        keeping.ended(done.ok());
    }
    let is_removed = !*stopping.borrow();
    if is_removed {
        requests.abort();
        handing_over.abort();
    }
    _ = requests.await;
    _ = handing_over.await;
    if is_removed {
        keeper.leave().await;
    }
}

enum Next {
    /// Something is due then.
    In(Duration),
    /// The engine's part of this database is gone.
    Never,
}

/// Views that are refreshed together.
struct Component {
    views: Vec<i64>,
    /// The tables for changes of all of them, by number.
    captures: Vec<i64>,
    pace: Pace,
    rhythms: Vec<Rhythm>,
    /// Whether some of them are not filled.
    is_new: bool,
    /// Whether some of them change as time passes.
    has_clock: bool,
    /// Refreshes that failed since one did not.
    failures: u32,
    /// Refreshes that were begun.
    refreshes: u64,
    due: Option<Instant>,
    /// The next tick of its cron expressions, in Unix milliseconds of the clock, which may be set meanwhile.
    tick_ms: Option<u64>,
    inspected: Instant,
    is_running: bool,
    /// None of its views could be refreshed.
    failing: Condition,
}

struct Keeping {
    keeper: Arc<Keeper>,
    components: Vec<Component>,
    tasks: JoinSet<Ended>,
    /// When the list of views was read; none: it is to be read.
    read_at: Option<Instant>,
    quiet: Quiet,
    unforgotten: Condition,
}

/// What a refresh came to: the first view of the component, how long it took, whether it failed, and why, where it failed for all.
struct Ended {
    first: Option<i64>,
    took: Duration,
    is_failed: bool,
    error: Option<ViewsError>,
}

impl Keeping {
    async fn go_on(&mut self) -> Result<Next, ViewsError> {
        let mut session = self.keeper.session().await?;
        let next = self.go_on_with(&mut session).await;
        if next.is_ok() {
            self.keeper.give_back(session);
        }
        next
    }

    async fn go_on_with(&mut self, session: &mut Session) -> Result<Next, ViewsError> {
        let now = Instant::now();
        let now_ms = self.keeper.shared.clock.now().as_millis_unsigned();
        for component in &mut self.components {
            component.follow_clock(now_ms);
        }
        let is_due = |component: &Component| {
            let has_ticked = component.tick_ms.is_some_and(|tick_ms| tick_ms <= now_ms);
            !component.is_running && (has_ticked || component.due.is_some_and(|due| due <= now))
        };
        let is_read = self.read_at.is_some_and(|at| at.elapsed() <= LOOK_AGAIN);
        if is_read && !self.components.iter().any(is_due) {
            return Ok(self.next(now));
        }
        let seen = quiet::seen(session).await?;
        let is_quiet = self.read_at.is_some() && self.quiet.is_since(&seen);
        match (is_read, is_quiet) {
            (true, _) => {}
            (false, true) => self.read_at = Some(now),
            (false, false) => {
                if self.keeper.known.inspect(&session.client).await?.is_none() {
                    return Ok(Next::Never);
                }
                self.keeper.set_installed();
                self.read(session).await?;
            }
        }
        let waiting = match is_quiet {
            true => BTreeSet::new(),
            false => match self.waiting(session).await? {
                Some(waiting) => waiting,
                None => return Ok(Next::In(TICK_MAX)),
            },
        };
        let is_resting = |one: &Component| one.is_resting() && !one.is_running;
        if waiting.is_empty() && self.components.iter().all(is_resting) {
            self.quiet.begin(seen);
        }
        let inspect = INSPECT.max(INSPECT_EACH * self.components.len() as u32);
        for component in self.components.iter_mut().filter(|one| is_due(one)) {
            let is_changed = component.captures.iter().any(|one| waiting.contains(one));
            let is_inspected = is_quiet || component.inspected.elapsed() < inspect;
            if !is_changed && component.is_resting() && is_inspected {
                // All that nothing is to be done of are looked at together.
                component.plan(now, Duration::ZERO, &self.keeper);
                let due = component.due;
                component.due = due.map(|due| self.quiet.together(now, due));
                continue;
            }
            component.is_running = true;
            component.inspected = now;
            component.refreshes += 1;
            let (keeper, views) = (self.keeper.clone(), component.views.clone());
            let number = component.refreshes;
            self.tasks
                .spawn(refreshed(keeper, views, (number, is_changed)));
        }
        Ok(self.next(now))
    }

    /// The tables for changes in which something waits; none where one of them has just been dropped, and the list is to be read again.
    async fn waiting(
        &mut self,
        session: &mut Session,
    ) -> Result<Option<BTreeSet<i64>>, ViewsError> {
        let captures = self.components.iter().flat_map(|one| &one.captures);
        let captures: BTreeSet<i64> = captures.copied().collect();
        let Session { client, statements } = session;
        match captures::waiting((client, statements), &captures).await {
            Err(ViewsError::Statement(error))
                if error.code() == Some(&SqlState::UNDEFINED_TABLE) =>
            {
                self.read_at = None;
                Ok(None)
            }
            waiting => Ok(Some(waiting?)),
        }
    }

    /// When something is due next.
    fn next(&self, now: Instant) -> Next {
        let waits = self.components.iter().filter(|one| !one.is_running);
        let now_ms = self.keeper.shared.clock.now().as_millis_unsigned();
        let waits = waits.flat_map(|one| {
            let until_due = one.due.map(|due| due.saturating_duration_since(now));
            let until_tick = one.tick_ms.map(|at_ms| at_ms.saturating_sub(now_ms));
            [until_due, until_tick.map(Duration::from_millis)]
        });
        let waits = waits.flatten();
        Next::In(waits.min().unwrap_or(TICK_MAX).min(TICK_MAX))
    }

    /// Reads the list of views.
    async fn read(&mut self, session: &mut Session) -> Result<(), ViewsError> {
        let records = self.keeper.known.views(session).await?;
        self.count(&records);
        let captures = captures::readers(&session.client).await?;
        match captures::sizes(&session.client).await {
            Ok(sizes) => self.measure(sizes),
            // Somebody may have locked one of them.
            Err(error) => tracing::debug!(%error, "what tables for changes take is not known"),
        }
        let is_kept = |record: &&Record| record.state != State::Suspended;
        let members: Vec<_> = records.iter().filter(is_kept).map(member).collect();
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.components);
        for members in components(&members) {
            let views: Vec<i64> = members.iter().map(|member| member.view).collect();
            let of_views = captures.iter().filter(|(view, _)| views.contains(view));
            let default_lag = self.keeper.shared.config.default_lag.duration();
            let pace = Pace::of(&members, default_lag);
            let rhythms = pace.crons.iter();
            let rhythms = rhythms.filter_map(|cron| Rhythm::new(cron, "").ok());
            let in_views = |record: &&Record| views.contains(&record.id);
            let has_clock = records.iter().filter(in_views).any(|one| one.has_clock);
            let mut component = Component {
                has_clock,
                is_new: records
                    .iter()
                    .filter(in_views)
                    .any(|one| one.snapshot.is_none()),
                captures: of_views.map(|(_, capture)| *capture).collect(),
                rhythms: rhythms.collect(),
                failures: 0,
                refreshes: 0,
                due: None,
                tick_ms: None,
                inspected: now,
                is_running: false,
                failing: self.failing_of(&records, &views),
                pace,
                views,
            };
            match before.iter().position(|one| one.views == component.views) {
                Some(place) => {
                    let old = before.swap_remove(place);
                    component.failures = old.failures;
                    component.refreshes = old.refreshes;
                    component.inspected = old.inspected;
                    component.is_running = old.is_running;
                    component.failing = old.failing;
                    if component.pace == old.pace {
                        (component.due, component.tick_ms) = (old.due, old.tick_ms);
                    } else {
                        component.plan(now, Duration::ZERO, &self.keeper);
                    }
                }
                None => component.plan(now, Duration::ZERO, &self.keeper),
            }
            self.components.push(component);
        }
        // One whose views are others now ends by itself.
        before.retain(|component| component.is_running);
        self.forget(session, &records).await;
        self.read_at = Some(Instant::now());
        Ok(())
    }

    /// Forgets the faults of views that are no more, and change sets whose time is over.
    async fn forget(&self, session: &Session, records: &[Record]) {
        let is_there = |subject: &str| {
            records
                .iter()
                .any(|one| self.keeper.subject(one) == subject)
        };
        self.keeper.faults.retain(is_there);
        match self.keeper.forget_changes(session).await {
            Ok(true) => self
                .unforgotten
                .recover("old change sets are forgotten again"),
            Ok(false) => {}
            Err(error) => {
                let message = "change sets whose time is over are not forgotten; retrying";
                self.unforgotten.fail(&error, message);
            }
        }
    }

    fn failing_of(&self, records: &[Record], views: &[i64]) -> Condition {
        let first = records
            .iter()
            .find(|record| views.first() == Some(&record.id));
        let name = first.map_or_else(String::new, |record| record.name.to_string());
        let subject = format!("{}: views with {name}", self.keeper.database);
        Condition::new("views_refresh_failing", subject)
    }

    fn count(&self, records: &[Record]) {
        for state in [State::New, State::Active, State::Failing, State::Suspended] {
            let count = records.iter().filter(|one| one.state == state).count();
            let views = &self.keeper.shared.metrics.views;
            let database = self.keeper.database.clone();
            let state = state.as_str();
            views
                .get_or_create(&InState { database, state })
                .set(count as i64);
        }
    }

    fn measure(&self, (bytes, dead_rows): (i64, i64)) {
        let metrics = &self.keeper.shared.metrics;
        let database = InDatabase {
            database: self.keeper.database.clone(),
        };
        let changes_bytes = &metrics.changes_bytes;
        changes_bytes.get_or_create(&database).set(bytes);
        let dead_rows_of = &metrics.changes_dead_rows;
        dead_rows_of.get_or_create(&database).set(dead_rows);
    }

    fn ended(&mut self, ended: Option<Ended>) {
        let Some(ended) = ended else {
            // It ended badly, which is logged where it did; all are looked at again.
            self.components.clear();
            self.read_at = None;
            return;
        };
        let mut components = self.components.iter_mut();
        let Some(component) = components.find(|one| one.views.first().copied() == ended.first)
        else {
            return;
        };
        component.is_running = false;
        component.is_new = false;
        match &ended.error {
            Some(error) => {
                let message = "views could not be refreshed; retrying";
                component.failing.fail(error, message);
            }
            None => component.failing.recover("views are refreshed again"),
        }
        component.failures = match ended.is_failed {
            true => component.failures + 1,
            false => 0,
        };
        component.plan(Instant::now(), ended.took, &self.keeper);
    }
}

/// Refreshes the views of a component that is due.
async fn refreshed(
    keeper: Arc<Keeper>,
    views: Vec<i64>,
    (number, is_changed): (u64, bool),
) -> Ended {
    let begun = Instant::now();
    let (is_failed, error) = match keeper.refresh_due(&views, number).await {
        Ok(reports) => {
            let did = |(report, _): &(RefreshReport, _)| report.outcome != "nothing";
            if is_changed && !reports.values().any(did) {
                // What waits has been seen, and was not removed.
                keeper.tidy_after(&views);
            }
            let is_failed = |(report, _): &(RefreshReport, _)| report.error.is_some();
            (reports.values().any(is_failed), None)
        }
        Err(error) => (true, Some(error)),
    };
    Ended {
        first: views.first().copied(),
        took: begun.elapsed(),
        is_failed,
        error,
    }
}

impl Component {
    /// Whether nothing is to be done as long as nothing changes. As time passes there always is, where that matters.
    fn is_resting(&self) -> bool {
        !self.is_new && !self.has_clock && self.failures == 0
    }

    /// Decides when it is refreshed next.
    fn plan(&mut self, now: Instant, took: Duration, keeper: &Keeper) {
        let config = &keeper.shared.config;
        if self.failures > 0 {
            let wait = config.retry_after.duration() * 2_u32.saturating_pow(self.failures - 1);
            self.due = Some(now + wait.min(config.retry_after_max.duration()));
            self.tick_ms = None;
            return;
        }
        self.due = self.pace.wait(took).map(|wait| now + wait);
        self.tick_ms = self.tick_after(keeper.shared.clock.now().as_millis_unsigned());
    }

    fn tick_after(&self, now_ms: u64) -> Option<u64> {
        let ticks = self.rhythms.iter();
        ticks.filter_map(|rhythm| rhythm.after(now_ms)).min()
    }

    /// A clock that was set back has ticks before the one that was planned.
    fn follow_clock(&mut self, now_ms: u64) {
        if let Some(tick_ms) = self.tick_ms.filter(|tick_ms| *tick_ms > now_ms) {
            self.tick_ms = self.tick_after(now_ms).or(Some(tick_ms));
        }
    }
}
