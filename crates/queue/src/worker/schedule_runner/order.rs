//! The order of due schedules: by their ticks among those of one tenant, with no tenant behind
//! another one.

use std::collections::BTreeMap;

use super::{DueSchedule, ScheduleRunner, TURN_SCHEDULES_MAX, TickBudget, schedule_tick};
use crate::core::state::State;

/// Load of the tasks of these ticks, by tenant.
pub(super) fn loads(come: &[DueSchedule]) -> BTreeMap<&str, u64> {
    let mut loads: BTreeMap<&str, u64> = BTreeMap::new();
    for come in come {
        *loads.entry(&*come.tenant).or_default() += u64::from(come.task_load);
    }
    loads
}

impl ScheduleRunner {
    /// The due schedules: first those of tenants without waiting ticks, then those that have
    /// waited, if room is to be checked, and then those behind them.
    pub(super) fn in_order(
        &self,
        state: &State,
        room: &TickBudget,
        now_ms: u64,
        looks_for_room: bool,
    ) -> Vec<DueSchedule> {
        let come = self.come(state, now_ms).into_iter();
        let (mut come, after): (Vec<DueSchedule>, Vec<DueSchedule>) =
            come.partition(|come| self.is_next(state, room, come));
        if looks_for_room {
            come.extend(self.with_room(state, room, now_ms));
        }
        come.extend(after);
        come
    }

    /// The first schedules whose tick is due, without those that are backed off.
    fn come(&self, state: &State, now_ms: u64) -> Vec<DueSchedule> {
        let come = state
            .ticks()
            .take_while(|(_, _, schedule)| schedule.next_ms <= now_ms)
            .filter(|(_, _, schedule)| !self.aside.contains_key(&schedule.record))
            .map(|(tenant, name, schedule)| schedule_tick(tenant, name, schedule));
        come.take(TURN_SCHEDULES_MAX).collect()
    }

    /// The first schedules whose tick has waited for room and whose tenant has some, each tenant's
    /// in order: none behind one for which there is too little.
    fn with_room(&self, state: &State, room: &TickBudget, now_ms: u64) -> Vec<DueSchedule> {
        let tenants = state.tenants_with_waiting_ticks();
        let come = tenants.flat_map(move |tenant| {
            let mut own = room.of_tenant(state, tenant);
            let waiting = self
                .waiting(state, room, tenant)
                .take_while(move |come| come.tick_ms <= now_ms);
            waiting.map_while(move |come| {
                own = own.checked_sub(u64::from(come.task_load))?;
                Some(come)
            })
        });
        come.take(TURN_SCHEDULES_MAX).collect()
    }

    /// A tenant's schedules whose tick waits for room, in the order of these ticks. Those that are
    /// backed off, or for which there can never be room, are left out: they block none.
    fn waiting(
        &self,
        state: &State,
        room: &TickBudget,
        tenant: &str,
    ) -> impl Iterator<Item = DueSchedule> {
        let waiting = state
            .waiting_ticks(tenant)
            .map(move |(name, schedule)| schedule_tick(tenant, name, schedule));
        waiting.filter(move |come| {
            room.is_ever_enough(come.task_load) && !self.aside.contains_key(&come.record)
        })
    }

    /// Whether no other schedule of the tenant has an earlier tick that waits.
    fn is_next(&self, state: &State, room: &TickBudget, come: &DueSchedule) -> bool {
        let first = self.waiting(state, room, &come.tenant).next();
        first.is_none_or(|first| first.record == come.record || come.tick_ms < first.tick_ms)
    }

    /// How many tasks a schedule may make for its tenant. All but the first leave room for the
    /// schedules behind it.
    pub(super) fn most(
        &self,
        state: &State,
        room: &TickBudget,
        come: &DueSchedule,
        behind: u64,
    ) -> u64 {
        if !self.is_next(state, room, come) {
            return 0;
        }
        let load = u64::from(come.task_load);
        let own = room.of_tenant(state, &come.tenant);
        own.saturating_sub(behind).max(load).min(own) / load
    }
}
