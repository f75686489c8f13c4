//! Makes the tasks of schedules whose tick is due.
//!
//! A tick whose tenant is at its limit on tasks waits for room: it is logged as a tick whose next
//! one is itself, so that a schedule has at most one that waits, and has it after a restart too.
//! Those of one tenant are processed in the order of their ticks, whatever the load of their tasks:
//! a due tick waits behind those that wait, and one whose task counts for two is not overtaken.
//! Tenants do not wait for each other.

mod order;

use std::collections::BTreeMap;

use egret_base::{Condition, CronSchedule, TenantShare, condition};
use egret_log::{LogError, Seq};

use super::turn::BatchTurn;
use crate::core::command::Command;
use crate::core::state::{Schedule, State};
use crate::error::QueueError;
use crate::model::MissedTickPolicy;
use crate::store::schedule::Description;
use crate::store::{content, record};
use crate::worker::partition_handle::ReadRecord;
use crate::worker::partition_handle::part_name;

pub(crate) use crate::core::state::NEVER_MS;

/// A tick is missed when no task could be made for so long after it, in milliseconds.
const LATE_MS: u64 = 10_000;

/// Tasks for missed ticks of a schedule, and for those that came while one waited for room, until
/// it has caught up. Further ticks are skipped, also where there is room for a few of them at a
/// time.
const MISSED_MAX: u32 = 1_000;

/// Schedules whose backlog is counted. A count that is dropped, as by a restart, starts at zero.
const BACKLOGS_MAX: usize = 4_096;

/// Tasks of a schedule in one record, besides those for missed ticks.
const TICKS_MAX: u32 = 1_000;

/// Schedules processed in one turn.
const TURN_SCHEDULES_MAX: usize = 256;

/// Tasks made in one turn, except that one schedule may make more.
const TURN_TASKS_MAX: u32 = 2_048;

/// Bytes of the record of a tick besides its names.
const RECORD_BYTES_MAX: usize = 64;

/// Cached expressions. One is some kilobytes, as it has a byte for each year.
const CRON_SCHEDULES_MAX: usize = 512;

const DAY_MS: i64 = 86_400_000;

/// The wait before something is retried, in milliseconds, including ticks that wait for room.
const RETRY_MS: u64 = 1_000;

/// Tasks and bytes that ticks may still use in a turn.
pub(crate) struct TickBudget {
    /// Number of further tasks that the partition may have.
    pub tasks: u64,
    /// Share of one tenant.
    pub share: TenantShare,
    /// Maximum bytes of records.
    pub bytes: usize,
}

impl TickBudget {
    /// Number of further tasks that a tenant may have.
    fn tenant_room(&self, state: &State, tenant: &str) -> u64 {
        let tenant_tasks = state.tenant_load(tenant).tasks;
        self.share.available(state.total_load().tasks, tenant_tasks)
    }

    /// Whether a tenant without tasks may have a task with this load.
    fn can_ever_fit(&self, task_load: u32) -> bool {
        self.share.available(0, 0) >= u64::from(task_load)
    }
}

/// Tasks to make for a due schedule, and its next tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TickPlan {
    tasks: u32,
    next_ms: u64,
}

/// Range of missed ticks of a schedule, and the policy for them.
#[derive(Clone, Copy, Debug)]
struct MissedTicks {
    policy: MissedTickPolicy,
    /// Ticks before this time were missed.
    until_ms: u64,
    /// Tasks already made for ticks of this range.
    made_up: u32,
}

/// Missed ticks of a schedule that are processed in several turns, as there was no room for all of
/// them at once.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    /// The first remaining tick.
    tick_ms: u64,
    /// Ticks before this belong to it: all that come until the schedule has caught up, where one
    /// waited for room.
    until_ms: u64,
    made_up: u32,
}

/// The first tick after a time, both in Unix milliseconds; [`NEVER_MS`] when there is none.
pub(crate) fn tick_after(cron_schedule: &CronSchedule, ms: u64) -> u64 {
    cron_schedule.next_after(ms).unwrap_or(NEVER_MS)
}

/// Plans the ticks from `tick_ms` up to now, with at most `tasks_max` tasks. `next_ms` is not after
/// now when there are more.
fn plan_ticks(
    cron_schedule: &CronSchedule,
    missed: MissedTicks,
    tick_ms: u64,
    now_ms: u64,
    tasks_max: u32,
) -> TickPlan {
    let (mut made_up, mut next_ms) = (0, tick_ms);
    let is_missed = |ms: u64| ms < missed.until_ms && ms <= now_ms;
    let made_up_max = MISSED_MAX.saturating_sub(missed.made_up);
    if is_missed(next_ms) {
        if missed.policy == MissedTickPolicy::All {
            while is_missed(next_ms) && made_up < made_up_max.min(tasks_max) {
                made_up += 1;
                next_ms = tick_after(cron_schedule, next_ms);
            }
        }
        if missed.policy != MissedTickPolicy::All || made_up == made_up_max {
            next_ms = tick_after(cron_schedule, missed.until_ms.min(now_ms + 1) - 1);
        }
    }
    let mut in_time = 0;
    while !is_missed(next_ms) && next_ms <= now_ms && in_time < TICKS_MAX.min(tasks_max - made_up) {
        in_time += 1;
        next_ms = tick_after(cron_schedule, next_ms);
    }
    let stand_in = u32::from(missed.policy == MissedTickPolicy::One && is_missed(tick_ms));
    TickPlan { tasks: (made_up + in_time).max(stand_in), next_ms }
}

/// A schedule that is retried later, because its record could not be read.
#[derive(Clone, Copy)]
struct BackedOffSchedule {
    since_ms: u64,
    retry_ms: u64,
}

pub(crate) struct ScheduleRunner {
    /// Recently used expressions, by the records of their schedules.
    cron_schedules: BTreeMap<u64, (CronSchedule, MissedTickPolicy)>,
    /// Schedules that are retried later, by their records.
    backed_off: BTreeMap<u64, BackedOffSchedule>,
    /// Missed ticks that are being processed, by the records of their schedules.
    backlogs: BTreeMap<u64, Backlog>,
    /// When tasks could last be made; `None`: not since the start.
    last_able_ms: Option<u64>,
    /// Ticks before this time were missed.
    missed_until_ms: u64,
    /// Nothing is done before this time.
    idle_until_ms: u64,
    /// When ticks that wait for room are tried again.
    room_check_ms: u64,
    /// Condition of schedules whose records cannot be read.
    read_condition: Condition,
}

/// A schedule whose tick is due.
struct DueSchedule {
    tenant: String,
    name: String,
    record: u64,
    tick_ms: u64,
    /// Whether the tick was due before and has waited for room since.
    has_waited: bool,
    /// Load of one of its tasks: two with a callback.
    task_load: u32,
}

fn schedule_tick(tenant: &str, name: &str, schedule: &Schedule) -> DueSchedule {
    DueSchedule {
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        record: schedule.record,
        tick_ms: schedule.next_ms,
        has_waited: schedule.waits_for_room(),
        task_load: 1 + u32::from(schedule.callback),
    }
}

/// Keeps the tick of a schedule waiting whose tenant has no room for its task. It stands for those
/// that come meanwhile, unless each of them makes a task.
fn wait_for_room(come: &DueSchedule) -> TickPlan {
    let reason = format_args!("schedule {}: queue.tenant_tasks_max is reached", come.name);
    let message = "a tenant has reached its task limit: runs of its schedules wait";
    condition::occur("queue_ticks_waiting", &come.tenant, reason, message);
    TickPlan { tasks: 0, next_ms: come.tick_ms }
}

impl ScheduleRunner {
    pub(crate) fn new(partition: usize) -> Self {
        Self {
            cron_schedules: BTreeMap::new(),
            backed_off: BTreeMap::new(),
            backlogs: BTreeMap::new(),
            last_able_ms: None,
            missed_until_ms: 0,
            idle_until_ms: 0,
            room_check_ms: 0,
            read_condition: Condition::new("queue_schedules_unreadable", part_name(partition)),
        }
    }

    /// When the next tick is to be processed, in Unix milliseconds.
    pub(crate) fn next_due_ms(&self, state: &State) -> Option<u64> {
        let mut upcoming = state.schedules_by_tick();
        let first =
            upcoming.find(|(_, _, schedule)| !self.backed_off.contains_key(&schedule.record));
        let first = first.map(|(_, _, schedule)| schedule.next_ms);
        let retry = self.backed_off.values().map(|aside| aside.retry_ms).min();
        let room_check = state.tenants_with_waiting_ticks().next();
        let room_again = room_check.map(|_| self.room_check_ms);
        let soonest = first.into_iter().chain(retry).chain(room_again).min();
        soonest.map(|due_ms| due_ms.max(self.idle_until_ms))
    }

    /// Whether a tick is to be processed now.
    pub(crate) fn has_due(&self, state: &State, now_ms: u64) -> bool {
        let due_ms = self.next_due_ms(state);
        due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Shifts the schedules after a step of the clock. Where the time has gone back by more than a
    /// day, schedules tick again from the present time on, as their next tick may be years ahead;
    /// by less, past ticks do not come again.
    pub(crate) fn step_clock(&mut self, turn: &mut BatchTurn<'_>, by_ms: i64, read: &ReadRecord) {
        let now_ms = turn.now.as_millis_unsigned();
        self.last_able_ms = self.last_able_ms.map(|able_ms| able_ms.min(now_ms));
        self.missed_until_ms = self.missed_until_ms.min(now_ms);
        self.idle_until_ms = self.idle_until_ms.min(now_ms);
        self.room_check_ms = self.room_check_ms.min(now_ms);
        for backed_off in self.backed_off.values_mut() {
            backed_off.since_ms = backed_off.since_ms.min(now_ms);
            backed_off.retry_ms = backed_off.retry_ms.min(now_ms);
        }
        if by_ms > -DAY_MS {
            return;
        }
        let schedules = turn.state.schedules();
        let known: Vec<DueSchedule> = schedules
            .filter(|(_, _, it)| !it.paused && it.next_ms != NEVER_MS)
            .map(|(tenant, name, it)| schedule_tick(tenant, name, it))
            .collect();
        for DueSchedule { tenant, name, record, tick_ms, has_waited, .. } in known {
            if let Err(error) = self.load_cron_schedule(record, read) {
                tracing::warn!(name, tenant, %error, "cannot read a schedule after the clock was set back; its next run stays as it was");
                continue;
            }
            // A tick that has waited for room keeps waiting.
            let next_ms = if has_waited {
                now_ms
            } else {
                tick_after(&self.cron_schedules[&record].0, now_ms)
            };
            if next_ms < tick_ms {
                let paused = turn.run(&Command::PauseSchedule {
                    tenant: &tenant,
                    name: &name,
                    paused: false,
                    next_ms,
                });
                debug_assert!(paused.is_ok(), "the schedule was just there");
            }
        }
    }

    /// Makes the tasks of due ticks, as many as there is room for. The rest is made in later turns.
    pub(crate) fn run(&mut self, turn: &mut BatchTurn<'_>, budget: &TickBudget, read: &ReadRecord) {
        let now_ms = turn.now.as_millis_unsigned();
        let is_due = |due_ms: u64| due_ms <= now_ms;
        if budget.tasks == 0 {
            self.idle_until_ms = now_ms + RETRY_MS;
            return;
        }
        self.idle_until_ms = 0;
        if self.last_able_ms.is_none_or(|able| now_ms > able + LATE_MS) {
            self.missed_until_ms = now_ms.saturating_sub(LATE_MS);
        }
        self.last_able_ms = Some(now_ms);
        if !self.next_due_ms(turn.state).is_some_and(is_due) {
            return;
        }
        let retries = self.take_retries(now_ms);
        let checks_room = is_due(self.room_check_ms);
        let due_schedules = self.due_in_order(turn.state, budget, now_ms, checks_room);
        let waited = due_schedules.iter().filter(|come| come.has_waited).count();
        let mut loads_behind = order::loads_by_tenant(&due_schedules);
        let (mut made_load, mut has_made_up) = (0, false);
        for come in &due_schedules {
            let remaining = budget.tasks.saturating_sub(u64::from(made_load));
            let bytes = come.tenant.len() + come.name.len() + RECORD_BYTES_MAX;
            // The first always fits: it is alone in the batch.
            let fits = turn.batch.is_empty() || turn.batch.frame_bytes_with(bytes) <= budget.bytes;
            if remaining == 0 {
                self.idle_until_ms = now_ms + RETRY_MS;
                return;
            }
            if made_load >= TURN_TASKS_MAX || !fits {
                return;
            }
            let load = u64::from(come.task_load);
            let load_behind = loads_behind.entry(&*come.tenant).or_default();
            *load_behind = load_behind.saturating_sub(load);
            let tasks_max =
                (remaining / load).min(self.tasks_max(turn.state, budget, come, *load_behind));
            if tasks_max == 0 && come.has_waited {
                continue;
            }
            let most = u32::try_from(tasks_max).unwrap_or(u32::MAX);
            let plan = match self.load_cron_schedule(come.record, read) {
                Ok(()) => self.plan_with_room(come, retries.get(&come.record), now_ms, most),
                Err(error) => match self.back_off(come, retries.get(&come.record), error, now_ms) {
                    Some(due) => due,
                    None => continue,
                },
            };
            let ticked = turn.run(&Command::Tick {
                tenant: &come.tenant,
                name: &come.name,
                tick_ms: come.tick_ms,
                next_ms: plan.next_ms,
                tasks: plan.tasks,
            });
            debug_assert!(ticked.is_ok(), "the schedule was just there");
            made_load += plan.tasks * come.task_load;
            has_made_up |= come.has_waited;
        }
        if checks_room && !(has_made_up && waited == TURN_SCHEDULES_MAX) {
            self.room_check_ms = now_ms + RETRY_MS;
        }
        if self.backed_off.is_empty() {
            self.read_condition.recover("schedules can be read again");
        }
    }

    /// Takes the backed off schedules whose retry is due, by the numbers of their records. Deleted
    /// schedules are dropped with them.
    fn take_retries(&mut self, now_ms: u64) -> BTreeMap<u64, BackedOffSchedule> {
        let is_due = |backed_off: &BackedOffSchedule| backed_off.retry_ms <= now_ms;
        let due = self.backed_off.iter().filter(|(_, aside)| is_due(aside));
        let due = due.map(|(seq, aside)| (*seq, *aside)).collect();
        self.backed_off.retain(|_, aside| !is_due(aside));
        due
    }

    /// Plans a schedule whose expression is cached and whose tenant has room for `tasks_max` tasks.
    /// Without any, the tick waits, unless it was missed and is skipped.
    fn plan_with_room(
        &mut self,
        schedule: &DueSchedule,
        backed_off: Option<&BackedOffSchedule>,
        now_ms: u64,
        tasks_max: u32,
    ) -> TickPlan {
        let (cron_schedule, policy) = &self.cron_schedules[&schedule.record];
        let missed = self.missed_ticks(schedule, *policy, backed_off, now_ms);
        let plan = plan_ticks(cron_schedule, missed, schedule.tick_ms, now_ms, tasks_max.max(1));
        if tasks_max == 0 && plan.tasks > 0 {
            return wait_for_room(schedule);
        }
        self.update_backlog(schedule.record, missed, plan, now_ms);
        plan
    }

    /// The missed ticks of a schedule.
    fn missed_ticks(
        &self,
        schedule: &DueSchedule,
        policy: MissedTickPolicy,
        backed_off: Option<&BackedOffSchedule>,
        now_ms: u64,
    ) -> MissedTicks {
        // Ticks that came while the record could not be read were missed as well.
        let unread = backed_off.is_some_and(|aside| now_ms > aside.since_ms + LATE_MS);
        let until_ms = match (schedule.has_waited, unread) {
            (true, _) => NEVER_MS,
            (false, true) => now_ms.saturating_sub(LATE_MS),
            (false, false) => self.missed_until_ms,
        };
        let backlog = self.backlogs.get(&schedule.record);
        let backlog = backlog.filter(|backlog| backlog.tick_ms == schedule.tick_ms);
        MissedTicks {
            policy: match (schedule.has_waited, policy) {
                // The tick that has waited was not missed: it stands for those that came meanwhile.
                (true, MissedTickPolicy::Skip) => MissedTickPolicy::One,
                (_, policy) => policy,
            },
            until_ms: backlog.map_or(until_ms, |backlog| until_ms.max(backlog.until_ms)),
            made_up: backlog.map_or(0, |backlog| backlog.made_up),
        }
    }

    /// Counts the tasks made for missed ticks where some are left, so that they end at
    /// [`MISSED_MAX`].
    fn update_backlog(&mut self, record: u64, missed: MissedTicks, plan: TickPlan, now_ms: u64) {
        let has_more = plan.next_ms < missed.until_ms && plan.next_ms <= now_ms;
        if missed.policy != MissedTickPolicy::All || !has_more {
            self.backlogs.remove(&record);
            return;
        }
        if self.backlogs.len() >= BACKLOGS_MAX {
            self.backlogs.pop_first();
        }
        let backlog = Backlog {
            tick_ms: plan.next_ms,
            until_ms: missed.until_ms,
            made_up: missed.made_up + plan.tasks,
        };
        self.backlogs.insert(record, backlog);
    }

    /// Backs off from a schedule that cannot be read now. One that can never be read is paused.
    fn back_off(
        &mut self,
        come: &DueSchedule,
        previous: Option<&BackedOffSchedule>,
        error: QueueError,
        now_ms: u64,
    ) -> Option<TickPlan> {
        let (name, tenant) = (&come.name, &come.tenant);
        match error {
            // It was put in this turn and can be read in the next one.
            QueueError::Log(LogError::Ahead { .. }) => None,
            QueueError::Log(error) => {
                let reason = format_args!("{name} of tenant {tenant}: {error}");
                self.read_condition.fail(reason, "cannot read a schedule; retrying");
                let backed_off = BackedOffSchedule {
                    since_ms: previous.map_or(now_ms, |aside| aside.since_ms),
                    retry_ms: now_ms + RETRY_MS,
                };
                self.backed_off.insert(come.record, backed_off);
                None
            }
            error => {
                tracing::error!(name, tenant, %error, "a schedule is invalid and runs no more: put it again");
                Some(TickPlan { tasks: 0, next_ms: NEVER_MS })
            }
        }
    }

    /// Caches the expression in a schedule's record.
    fn load_cron_schedule(&mut self, record: u64, read: &ReadRecord) -> Result<(), QueueError> {
        if self.cron_schedules.contains_key(&record) {
            return Ok(());
        }
        let parsed = read_cron_schedule(record, read)?;
        if self.cron_schedules.len() >= CRON_SCHEDULES_MAX {
            self.cron_schedules.pop_first();
        }
        self.cron_schedules.insert(record, parsed);
        Ok(())
    }
}

fn read_cron_schedule(
    seq: u64,
    read: &ReadRecord,
) -> Result<(CronSchedule, MissedTickPolicy), QueueError> {
    let record = read(Seq(seq))?;
    let Command::PutSchedule(put) = record::decode(&record)? else {
        return Err(QueueError::Invalid {
            what: "schedule",
            reason: format!("record {seq} does not hold a schedule"),
        });
    };
    let description = Description::decode(content::decode(put.task.content)?.private.schedule)?;
    let cron_schedule = CronSchedule::new(description.cron, description.time_zone)?;
    Ok((cron_schedule, description.missed))
}

#[cfg(test)]
mod tests;
