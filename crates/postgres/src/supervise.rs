//! When a server that ended by itself is started again. Pure: the times of its ends come in.

use std::time::Duration;

use egret_base::Timestamp;

/// The wait before the first restart; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait between two restarts.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Ends within this time count towards a crash loop.
const WINDOW: Duration = Duration::from_secs(300);
/// As many ends within the window are a crash loop.
pub const CRASH_LOOP_EXITS_MIN: usize = 5;

/// The recent unexpected ends of one server.
#[derive(Clone, Debug, Default)]
pub struct RestartHistory {
    exits: Vec<Timestamp>,
}

/// What to do after an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// How long to wait before starting again.
    pub wait: Duration,
    /// How often it ended within the last five minutes.
    pub exit_count: usize,
    /// Whether the server is in a crash loop, which is reported while the attempts go on.
    pub is_crash_loop: bool,
}

impl Decision {
    /// The decision for a server that could not be started for an external reason: no end is
    /// counted, and the wait grows.
    #[must_use]
    pub fn with_longer_wait(self) -> Self {
        Self { wait: (self.wait * 2).min(LONGEST_WAIT), ..self }
    }
}

impl RestartHistory {
    /// Records an end at `now` and decides.
    pub fn record_exit(&mut self, now: Timestamp) -> Decision {
        self.exits.push(now);
        self.decide(now)
    }

    /// Decides about a server that could not be started for an external reason: no end is counted.
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        self.exits.retain(|end| now.since(*end) < WINDOW);
        let doublings =
            u32::try_from(self.exits.len().saturating_sub(1)).unwrap_or(u32::MAX).min(16);
        Decision {
            wait: (FIRST_WAIT * 2_u32.pow(doublings)).min(LONGEST_WAIT),
            exit_count: self.exits.len(),
            is_crash_loop: self.exits.len() >= CRASH_LOOP_EXITS_MIN,
        }
    }
}

#[cfg(test)]
mod tests;
