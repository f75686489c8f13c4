//! Which views are refreshed together, and when.
//!
//! Views that read each other form a *component*, which is refreshed as a whole: a reader of two of
//! its views in one transaction sees both at the same snapshot. The tightest schedule of a
//! component holds.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Schedule;

/// A view with its dependencies and schedule.
#[derive(Clone, Debug)]
pub struct Member {
    /// Number of the view. It is higher than those of the views that it reads.
    pub view: i64,
    /// Numbers of the views that it reads.
    pub reads: Vec<i64>,
    /// Its own schedule, if it has one.
    pub schedule: Option<Schedule>,
}

/// When a component is refreshed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RefreshTiming {
    /// The shortest lag of its views, if one has a lag.
    pub lag: Option<Duration>,
    /// Cron expressions at whose times it is refreshed too.
    pub crons: Vec<String>,
}

/// The components; in each, a view comes after those that it reads.
pub fn components(members: &[Member]) -> Vec<Vec<&Member>> {
    let mut root: BTreeMap<i64, i64> = BTreeMap::new();
    fn find_root(root: &BTreeMap<i64, i64>, mut view: i64) -> i64 {
        while let Some(parent) = root.get(&view).filter(|up| **up != view) {
            view = *parent;
        }
        view
    }
    for member in members {
        root.entry(member.view).or_insert(member.view);
        for read in &member.reads {
            root.entry(*read).or_insert(*read);
            let (left, right) = (find_root(&root, member.view), find_root(&root, *read));
            root.insert(left.max(right), left.min(right));
        }
    }
    let mut all: BTreeMap<i64, Vec<&Member>> = BTreeMap::new();
    for member in members {
        all.entry(find_root(&root, member.view)).or_default().push(member);
    }
    let mut all: Vec<Vec<&Member>> = all.into_values().collect();
    for component in &mut all {
        component.sort_by_key(|member| member.view);
    }
    all
}

impl RefreshTiming {
    /// The timing of a component, by the schedules of its views.
    pub(crate) fn from_component(component: &[&Member], default_lag: Duration) -> Self {
        let mut timing = Self::default();
        let mut has_schedule = false;
        for member in component {
            has_schedule |= member.schedule.is_some();
            match &member.schedule {
                Some(Schedule::Lag(lag)) => {
                    let lag = lag.duration();
                    timing.lag = Some(timing.lag.map_or(lag, |other| other.min(lag)));
                }
                Some(Schedule::Cron(cron)) => timing.crons.push(cron.clone()),
                Some(Schedule::Manual) | None => {}
            }
        }
        if !has_schedule {
            timing.lag = Some(default_lag);
        }
        timing
    }

    /// How long after the start of a refresh the next one starts, by the lag: a commit just after
    /// the start of a refresh is visible at the end of the next one.
    pub(crate) fn next_delay(&self, took: Duration) -> Option<Duration> {
        let lag = self.lag?;
        let remaining = lag.saturating_sub(took * 2);
        Some(remaining.mul_f64(0.8).max(lag / 8))
    }
}

#[cfg(test)]
mod tests;
