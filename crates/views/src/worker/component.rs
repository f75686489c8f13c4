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
    pub due: Option<Instant>,
    /// Next tick of its cron expressions, in Unix milliseconds of the clock, which may be set
    /// meanwhile.
    pub tick_ms: Option<u64>,
    pub inspected: Instant,
    pub is_running: bool,
    /// Raised while none of its views can be refreshed.
    pub failing: Condition,
}

impl Component {
    /// Whether the component has nothing to do as long as its tables do not change: filled, without
    /// failure and without a dependence on the clock.
    pub(super) fn is_resting(&self) -> bool {
        !self.is_new && !self.has_clock && self.failures == 0
    }

    /// Whether a refresh is to be started.
    pub(super) fn is_due(&self, now: Instant, now_ms: u64) -> bool {
        let has_ticked = self.tick_ms.is_some_and(|tick_ms| tick_ms <= now_ms);
        !self.is_running && (has_ticked || self.due.is_some_and(|due| due <= now))
    }

    /// Sets the time of the next refresh.
    pub(super) fn schedule_next(&mut self, now: Instant, took: Duration, context: &ViewsContext) {
        let config = &context.config;
        if self.failures > 0 {
            let wait = config.retry_after.duration() * 2_u32.saturating_pow(self.failures - 1);
            self.due = Some(now + wait.min(config.retry_after_max.duration()));
            self.tick_ms = None;
            return;
        }
        self.due = self.timing.wait(took).map(|wait| now + wait);
        self.tick_ms = self.tick_after(context.clock.now().as_millis_unsigned());
    }

    fn tick_after(&self, now_ms: u64) -> Option<u64> {
        let ticks = self.crons.iter();
        ticks.filter_map(|cron| cron.after(now_ms)).min()
    }

    /// After the clock was set back, the next tick may be earlier than the planned one.
    pub(super) fn follow_clock(&mut self, now_ms: u64) {
        if let Some(tick_ms) = self.tick_ms.filter(|tick_ms| *tick_ms > now_ms) {
            self.tick_ms = self.tick_after(now_ms).or(Some(tick_ms));
        }
    }
}
