//! The step of a partition's clock, within a turn.

use crate::core::command::Command;
use crate::worker::dispatch::Dispatcher;
use crate::worker::monotonic_clock::ClockStep;
use crate::worker::partition_handle::ReadRecord;
use crate::worker::schedule_runner::ScheduleRunner;
use crate::worker::turn::BatchTurn;

/// Shifts the partition's time, and everything in and beside its state that waits for a time.
pub(super) fn step_clock(
    turn: &mut BatchTurn<'_>,
    step: ClockStep,
    schedule_runner: &mut ScheduleRunner,
    dispatcher: &mut Dispatcher,
    read: &ReadRecord,
) {
    tracing::info!(
        by_ms = step.by_ms,
        now = %step.now,
        "the clock was corrected: the times of a partition are shifted; delays and leases keep \
         their remaining time"
    );
    let stepped = turn.run(&Command::Step { by_ms: step.by_ms });
    debug_assert!(stepped.is_ok(), "a step is not refused");
    turn.now = step.now;
    schedule_runner.step_clock(turn, step.by_ms, read);
    dispatcher.step_clock(step.by_ms);
}
