//! Which views are refreshed together, and when.
//!
//! Views that read each other are one *component*: it is refreshed as a whole, so that whoever reads two of its views in
//! one transaction sees both at one snapshot. The tightest schedule in it counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Schedule;

/// A view, as far as it matters here.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number. It is higher than those of the views that it reads.
    pub view: i64,
    /// The views that it reads.
    pub reads: Vec<i64>,
    /// When it is refreshed.
    pub schedule: Option<Schedule>,
}

/// When a component is refreshed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// So that it is never further behind than this.
    pub lag: Option<Duration>,
    /// And at the times of these.
    pub crons: Vec<String>,
}

/// The components, and in each its views, those that are read before those that read them.
pub fn components(members: &[Member]) -> Vec<Vec<&Member>> {
    let mut root: BTreeMap<i64, i64> = BTreeMap::new();
    fn find(root: &BTreeMap<i64, i64>, mut view: i64) -> i64 {
        while let Some(up) = root.get(&view).filter(|up| **up != view) {
            view = *up;
        }
        view
    }
    for member in members {
        root.entry(member.view).or_insert(member.view);
        for read in &member.reads {
            root.entry(*read).or_insert(*read);
            let (one, other) = (find(&root, member.view), find(&root, *read));
            root.insert(one.max(other), one.min(other));
        }
    }
    let mut all: BTreeMap<i64, Vec<&Member>> = BTreeMap::new();
    for member in members {
        all.entry(find(&root, member.view))
            .or_default()
            .push(member);
    }
    let mut all: Vec<Vec<&Member>> = all.into_values().collect();
    for component in &mut all {
        component.sort_by_key(|member| member.view);
    }
    all
}

impl Pace {
    /// That of a component.
    pub fn of(component: &[&Member], default_lag: Duration) -> Self {
        let mut pace = Self::default();
        let mut has_schedule = false;
        for member in component {
            has_schedule |= member.schedule.is_some();
            match &member.schedule {
                Some(Schedule::Lag(lag)) => {
                    let lag = lag.duration();
                    pace.lag = Some(pace.lag.map_or(lag, |other| other.min(lag)));
                }
                Some(Schedule::Cron(cron)) => pace.crons.push(cron.clone()),
                Some(Schedule::Manual) | None => {}
            }
        }
        if !has_schedule {
            pace.lag = Some(default_lag);
        }
        pace
    }

    /// How long after a refresh has begun the next one is to begin, by its lag: what commits at once after a refresh was
    /// begun is seen when the next one is done.
    pub fn wait(&self, took: Duration) -> Option<Duration> {
        let lag = self.lag?;
        let room = lag.saturating_sub(took * 2);
        Some(room.mul_f64(0.8).max(lag / 8))
    }
}

#[cfg(test)]
mod tests;
