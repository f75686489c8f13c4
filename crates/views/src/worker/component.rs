//! Views that are refreshed together, and when their next refresh is due.

use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::rhythm::CronSchedule;

use super::context::ViewsContext;
use crate::core::scheduling::RefreshTiming;

/// Views that are refreshed together.
pub(super) struct Component {
    pub views: Vec<i64>,
    /// Numbers of the tables for changes that the views read.
    pub captures: Vec<i64>,
    pub timing: RefreshTiming,
    pub crons: Vec<CronSchedule>,
    /// Whether a view has not been filled yet.
    pub is_new: bool,
    /// Whether a view depends on the clock.
    pub has_clock: bool,
    /// Failed refreshes since the last successful one.
    pub failures: u32,
    /// Number of refreshes that were started.
    pub refreshes: u64,
    pub due_at: Option<Instant>,
    /// Next tick of its cron expressions, in Unix milliseconds of the clock, which may be set
    /// meanwhile.
    pub next_tick_ms: Option<u64>,
    pub inspected_at: Instant,
    pub is_running: bool,
    /// Raised while none of its views can be refreshed.
    pub condition: Condition,
}

impl Component {
    /// Whether the component has nothing to do as long as its tables do not change: filled, without
    /// failure and without a dependence on the clock.
    pub(super) fn is_change_driven(&self) -> bool {
        !self.is_new && !self.has_clock && self.failures == 0
    }

    /// Whether a refresh is to be started.
    pub(super) fn is_due(&self, now: Instant, now_ms: u64) -> bool {
        let has_ticked = self.next_tick_ms.is_some_and(|tick_ms| tick_ms <= now_ms);
        !self.is_running && (has_ticked || self.due_at.is_some_and(|due| due <= now))
    }

    /// Sets the time of the next refresh.
    pub(super) fn schedule_next(&mut self, now: Instant, took: Duration, context: &ViewsContext) {
        let config = &context.config;
        if self.failures > 0 {
            let wait = config.retry_after.duration() * 2_u32.saturating_pow(self.failures - 1);
            self.due_at = Some(now + wait.min(config.retry_after_max.duration()));
            self.next_tick_ms = None;
            return;
        }
        self.due_at = self.timing.next_delay(took).map(|wait| now + wait);
        self.next_tick_ms = self.find_next_tick(context.clock.now().as_millis_unsigned());
    }

    fn find_next_tick(&self, now_ms: u64) -> Option<u64> {
        let ticks = self.crons.iter();
        ticks.filter_map(|cron| cron.next_after(now_ms)).min()
    }

    /// After the clock was set back, the next tick may be earlier than the planned one.
    pub(super) fn adjust_to_clock(&mut self, now_ms: u64) {
        if let Some(tick_ms) = self.next_tick_ms.filter(|tick_ms| *tick_ms > now_ms) {
            self.next_tick_ms = self.find_next_tick(now_ms).or(Some(tick_ms));
        }
    }
}
