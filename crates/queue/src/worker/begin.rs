//! How a partition begins: with what its log holds, and an epoch of its own.

use egret_base::{Clock, Entropy};
use egret_log::{Appended, Batch, Log, Seq};

use super::turn::Turn;
use super::watch::Watchers;
use crate::core::command::Command;
use crate::core::state::State;
use crate::error::QueueError;
use crate::store::record;

/// Applies every record from `from` on.
///
/// # Errors
/// [`QueueError::Log`] and [`QueueError::Malformed`].
pub(crate) fn replay(log: &impl Log, from: Seq, state: &mut State) -> Result<(), QueueError> {
    for record in log.tail(from) {
        let (seq, bytes) = record?;
        let command = record::decode(&bytes)?;
        if state.apply(seq.0, &command).is_err() {
            tracing::error!(%seq, "a record of the queue's log was refused");
        }
    }
    Ok(())
}

/// From here on leases differ from all that were given before; those that are out last for `grace_ms`.
///
/// # Errors
/// [`QueueError::Log`].
pub(crate) fn begin_epoch(
    log: &mut impl Log,
    state: &mut State,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    grace_ms: u64,
) -> Result<(), QueueError> {
    let random = entropy.ten();
    let mut batch = Batch::new();
    let mut watchers = Watchers::default();
    let first = log.next();
    let epoch = state.epoch() + 1;
    let mut turn = Turn {
        state,
        batch: &mut batch,
        watchers: &mut watchers,
        first,
        now: clock.now(),
        seed: u64::from_le_bytes(random[..8].try_into().expect("eight of ten bytes")),
    };
    let begun = turn.run(&Command::Epoch {
        epoch,
        instance: u16::from_le_bytes([random[8], random[9]]) & 0x3fff,
        grace_ms,
    });
    begun.map_err(QueueError::from)?;
    match log.append(&mut batch, first)? {
        Appended::Committed(_) => {}
        other => unreachable!("a log in local files knows what it has: {other:?}"),
    }
    log.sync()?;
    // Nobody was there to be told of what happened before.
    state.news = Default::default();
    Ok(())
}
