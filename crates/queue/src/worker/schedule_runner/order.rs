//! The order of due schedules: by their ticks among those of one tenant, with no tenant behind
//! another one.

use std::collections::BTreeMap;

use super::{DueSchedule, ScheduleRunner, TURN_SCHEDULES_MAX, TickBudget, schedule_tick};
use crate::core::state::State;

/// Load of the tasks of these ticks, by tenant.
pub(super) fn loads_by_tenant(due_schedules: &[DueSchedule]) -> BTreeMap<&str, u64> {
    let mut loads: BTreeMap<&str, u64> = BTreeMap::new();
    for schedule in due_schedules {
        *loads.entry(&*schedule.tenant).or_default() += u64::from(schedule.task_load);
    }
    loads
}

impl ScheduleRunner {
    /// The due schedules: first those of tenants without waiting ticks, then those that have
    /// waited, if room is to be checked, and then those behind them.
    pub(super) fn due_in_order(
        &self,
        state: &State,
        budget: &TickBudget,
        now_ms: u64,
        checks_room: bool,
    ) -> Vec<DueSchedule> {
        let due_schedules = self.due_schedules(state, now_ms).into_iter();
        let (mut come, behind_waiting): (Vec<DueSchedule>, Vec<DueSchedule>) =
            due_schedules.partition(|come| self.is_first_of_tenant(state, budget, come));
        if checks_room {
            come.extend(self.waiting_with_room(state, budget, now_ms));
        }
        come.extend(behind_waiting);
        come
    }

    /// The first schedules whose tick is due, without those that are backed off.
    fn due_schedules(&self, state: &State, now_ms: u64) -> Vec<DueSchedule> {
        let due_schedules = state
            .schedules_by_tick()
            .take_while(|(_, _, schedule)| schedule.next_ms <= now_ms)
            .filter(|(_, _, schedule)| !self.backed_off.contains_key(&schedule.record))
            .map(|(tenant, name, schedule)| schedule_tick(tenant, name, schedule));
        due_schedules.take(TURN_SCHEDULES_MAX).collect()
    }

    /// The first schedules whose tick has waited for room and whose tenant has some, each tenant's
    /// in order: none behind one for which there is too little.
    fn waiting_with_room(
        &self,
        state: &State,
        budget: &TickBudget,
        now_ms: u64,
    ) -> Vec<DueSchedule> {
        let tenants = state.tenants_with_waiting_ticks();
        let due_schedules = tenants.flat_map(move |tenant| {
            let mut tenant_room = budget.tenant_room(state, tenant);
            let waiting = self
                .waiting_schedules(state, budget, tenant)
                .take_while(move |schedule| schedule.tick_ms <= now_ms);
            waiting.map_while(move |come| {
                tenant_room = tenant_room.checked_sub(u64::from(come.task_load))?;
                Some(come)
            })
        });
        due_schedules.take(TURN_SCHEDULES_MAX).collect()
    }

    /// A tenant's schedules whose tick waits for room, in the order of these ticks. Those that are
    /// backed off, or for which there can never be room, are left out: they block none.
    fn waiting_schedules(
        &self,
        state: &State,
        budget: &TickBudget,
        tenant: &str,
    ) -> impl Iterator<Item = DueSchedule> {
        let waiting = state
            .waiting_schedules(tenant)
            .map(move |(name, schedule)| schedule_tick(tenant, name, schedule));
        waiting.filter(move |come| {
            budget.can_ever_fit(come.task_load) && !self.backed_off.contains_key(&come.record)
        })
    }

    /// Whether no other schedule of the tenant has an earlier tick that waits.
    fn is_first_of_tenant(
        &self,
        state: &State,
        budget: &TickBudget,
        schedule: &DueSchedule,
    ) -> bool {
        let first = self.waiting_schedules(state, budget, &schedule.tenant).next();
        first
            .is_none_or(|first| first.record == schedule.record || schedule.tick_ms < first.tick_ms)
    }

    /// How many tasks a schedule may make for its tenant. All but the first leave room for the
    /// schedules behind it.
    pub(super) fn tasks_max(
        &self,
        state: &State,
        budget: &TickBudget,
        schedule: &DueSchedule,
        load_behind: u64,
    ) -> u64 {
        if !self.is_first_of_tenant(state, budget, schedule) {
            return 0;
        }
        let load = u64::from(schedule.task_load);
        let tenant_room = budget.tenant_room(state, &schedule.tenant);
        tenant_room.saturating_sub(load_behind).max(load).min(tenant_room) / load
    }
}
