//! The turn in which a partition's time becomes another one.

use super::*;
use crate::worker::steady::ClockStep;

/// Moves the partition's time, and everything in and beside its state that waits for a time.
pub(super) fn step_clock(
    turn: &mut Turn<'_>,
    step: ClockStep,
    ticks: &mut Ticks,
    dispatcher: &mut Dispatcher,
    read: &ReadRecord,
) {
    tracing::info!(
        by_ms = step.by_ms,
        now = %step.now,
        "a partition's time moves with the clock; delays and leases go on counting what has elapsed"
    );
    let stepped = turn.run(&Command::Step { by_ms: step.by_ms });
    debug_assert!(stepped.is_ok(), "a step is not refused");
    turn.now = step.now;
    ticks.step(turn, step.by_ms, read);
    dispatcher.step(step.by_ms);
}
