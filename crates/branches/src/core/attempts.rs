//! Whether and when a session is tried again that a branch's server has not opened.

use std::time::Duration;

use egret_postgres::wire::WireError;

/// The wait after the first attempt; it doubles each time.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// How often a server that does not answer, though nothing has stopped it, is tried again.
const NO_ANSWERS_MAX: u32 = 2;

/// Why a branch's server opened no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFailure {
    /// It was stopped meanwhile. Attaching again waits for the end of that and wakes the branch.
    Stopped,
    /// It is starting, recovering or shutting down.
    NotAccepting,
    /// There is nothing behind its socket, or the connection was lost.
    NoAnswer,
}

impl SessionFailure {
    /// The reason that may pass; `None` where the server would refuse again.
    pub fn from_error(error: &WireError, was_stopped: bool) -> Option<Self> {
        match error {
            _ if was_stopped => Some(Self::Stopped),
            WireError::Unreachable { .. } | WireError::Lost(_) => Some(Self::NoAnswer),
            error => error
                .server()
                .filter(|refusal| ["57P01", "57P02", "57P03"].contains(&refusal.sqlstate.as_str()))
                .map(|_| Self::NotAccepting),
        }
    }
}

/// The attempts of one client to get a session.
#[derive(Debug, Default)]
pub struct Attempts {
    waits: u32,
    no_answers: u32,
}

impl Attempts {
    /// How long to wait before the next attempt; `None` to give up. The caller bounds the time of
    /// all attempts.
    pub fn wait_after(&mut self, failure: SessionFailure) -> Option<Duration> {
        match failure {
            SessionFailure::Stopped => return Some(Duration::ZERO),
            SessionFailure::NotAccepting => {}
            SessionFailure::NoAnswer if self.no_answers == NO_ANSWERS_MAX => return None,
            SessionFailure::NoAnswer => self.no_answers += 1,
        }
        let wait = WAIT_MIN.saturating_mul(1 << self.waits.min(16));
        self.waits += 1;
        Some(wait.min(WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_that_is_stopped_is_attached_again_at_once_and_without_end() {
        let mut attempts = Attempts::default();
        for _ in 0..100 {
            let wait = attempts.wait_after(SessionFailure::Stopped);
            assert_eq!(wait, Some(Duration::ZERO));
        }
    }

    #[test]
    fn waits_for_a_recovering_server_grow_up_to_a_bound() {
        let mut attempts = Attempts::default();
        let waits: Vec<u128> = (0..7)
            .filter_map(|_| attempts.wait_after(SessionFailure::NotAccepting))
            .map(|wait| wait.as_millis())
            .collect();
        assert_eq!(waits, [20, 40, 80, 160, 320, 500, 500]);
    }

    #[test]
    fn a_server_that_does_not_answer_is_given_up() {
        let mut attempts = Attempts::default();
        let waits = std::iter::from_fn(|| attempts.wait_after(SessionFailure::NoAnswer));
        assert_eq!(waits.count(), 2);
    }
}
