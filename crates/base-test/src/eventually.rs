//! Waits of tests: a condition is polled until it holds, and a wait in vain ends with a message.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// The longest wait. It ends tests that would hang otherwise, and measures nothing.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// The pause between two polls, in which the code under test has the processor.
const POLL_PAUSE: Duration = Duration::from_millis(1);

/// The result of one poll of a condition: `bool`, `Option` of a value, or `Result` whose error is
/// the state that was seen instead.
pub trait Observation {
    /// The result of the wait.
    type Value;

    /// The value, once the condition holds; until then the state that was seen, where there is one.
    fn into_value(self) -> Result<Self::Value, Option<String>>;
}

impl Observation for bool {
    type Value = ();

    fn into_value(self) -> Result<(), Option<String>> {
        if self { Ok(()) } else { Err(None) }
    }
}

impl<T> Observation for Option<T> {
    type Value = T;

    fn into_value(self) -> Result<T, Option<String>> {
        self.ok_or(None)
    }
}

impl<T, E: Debug> Observation for Result<T, E> {
    type Value = T;

    fn into_value(self) -> Result<T, Option<String>> {
        self.map_err(|seen| Some(format!("{seen:?}")))
    }
}

/// Waits on tokio until a condition holds, and returns its value.
///
/// # Panics
/// When it does not hold within two minutes, with `what` and the state that was seen last.
#[track_caller]
pub fn eventually<O: Observation>(
    what: &str,
    mut condition: impl AsyncFnMut() -> O,
) -> impl Future<Output = O::Value> {
    let caller = Location::caller();
    async move {
        let mut last_seen = None;
        let polling = async {
            loop {
                match condition().await.into_value() {
                    Ok(value) => return value,
                    Err(seen) => last_seen = seen,
                }
                tokio::time::sleep(POLL_PAUSE).await;
            }
        };
        let polled = tokio::time::timeout(WAIT_MAX, polling).await;
        polled.unwrap_or_else(|_| panic!("{caller}: {}", failure(what, last_seen)))
    }
}

/// Waits on the thread of the caller until a condition holds, and returns its value.
///
/// # Panics
/// When it does not hold within two minutes, with `what` and the state that was seen last.
#[track_caller]
pub fn eventually_blocking<O: Observation>(
    what: &str,
    mut condition: impl FnMut() -> O,
) -> O::Value {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        match condition().into_value() {
            Ok(value) => return value,
            Err(seen) => assert!(Instant::now() < deadline, "{}", failure(what, seen)),
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

fn failure(what: &str, last_seen: Option<String>) -> String {
    let seen = last_seen.map_or_else(String::new, |seen| format!("; last seen: {seen}"));
    format!("did not happen within {WAIT_MAX:?}: {what}{seen}")
}

#[cfg(test)]
mod tests;
