//! The measured window: its clocks, and what used the processors meanwhile.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;

use crate::attach::Profiler;
use crate::process::{Snapshot, Usage};

/// Wall clock and monotonic clock may differ by this much…
const DRIFT_MAX: Duration = Duration::from_millis(100);

/// …and by this share of the window: what a clock that is being corrected gently may do.
const DRIFT_SHARE_MAX: f64 = 0.001;

/// An open window. Offsets in recorders count from [`Window::origin`].
pub struct Window {
    origin: Instant,
    wall_start: SystemTime,
    start_snapshot: Snapshot,
    roots: Vec<u32>,
    profiler: Option<Profiler>,
}

/// What was seen around the load of one window.
#[derive(Clone, Debug)]
pub struct WindowObservation {
    /// When the window began.
    pub started_at: jiff::Timestamp,
    /// Length of the window.
    pub wall: Duration,
    /// How far the wall clock jumped against the monotonic one, in seconds, where that voids the
    /// window.
    pub clock_jump: Option<f64>,
    /// Processor time in the window.
    pub usage: Usage,
    /// Stacks of the server's profile, one per line with its count, or why there are none; `None`
    /// if no profile was requested.
    pub profile: Option<Result<String, String>>,
}

impl Window {
    pub(crate) fn open(roots: Vec<u32>, profiler: Option<Profiler>) -> Result<Self> {
        let before = Snapshot::take()?;
        Ok(Self {
            start_snapshot: before,
            roots,
            profiler,
            wall_start: SystemTime::now(),
            origin: Instant::now(),
        })
    }

    /// From where offsets count.
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Time since the window was opened.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Ends it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub async fn close(self) -> Result<WindowObservation> {
        let wall = self.origin.elapsed();
        let clock_jump = clock_jump(self.wall_start, SystemTime::now(), wall);
        let usage = Snapshot::take()?.usage_since(&self.start_snapshot, &self.roots);
        let profile = match self.profiler {
            Some(profiler) => {
                let profile = profiler.finish().await;
                Some(profile.map_err(|error| format!("{error:#}")))
            }
            None => None,
        };
        Ok(WindowObservation {
            started_at: jiff::Timestamp::try_from(self.wall_start)?,
            wall,
            clock_jump,
            usage,
            profile,
        })
    }
}

/// How far the wall clock went more or less than the monotonic one, where that is too far.
fn clock_jump(before: SystemTime, after: SystemTime, monotonic: Duration) -> Option<f64> {
    let wall = match after.duration_since(before) {
        Ok(forward) => forward.as_secs_f64(),
        Err(backward) => -backward.duration().as_secs_f64(),
    };
    let drift = wall - monotonic.as_secs_f64();
    let allowed = DRIFT_MAX.as_secs_f64() + monotonic.as_secs_f64() * DRIFT_SHARE_MAX;
    (drift.abs() > allowed).then_some(drift)
}

#[cfg(test)]
mod tests;
