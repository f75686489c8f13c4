//! Order of sending: receivers and tenants share the slots, and a receiver that does not answer
//! delays its own callbacks only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_outgoing::{Admission, Delivery, Slots, receiver_of};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::lanes::{CallbackLanes, LaneKey};
use super::{Callback, CallbackSender};
use crate::core::command::Defer;
use crate::metrics::CallbackOutcome;
use crate::worker::submission::ReportKind;

/// How often the leases of callbacks that wait for a slot are renewed: several times before they
/// end.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(8);

/// The delay of a callback for which its lane has no room, in milliseconds: one step more for each
/// lane full of callbacks before it.
const RETURN_STEP_MS: u64 = 5_000;

/// The longest such delay.
const RETURN_DELAY_MAX_MS: u64 = 300_000;

/// Callbacks that are returned within one step.
const RETURNED_PER_STEP: u64 = 64;

/// A callback that was sent, and the receiver's response.
pub(super) struct SendResult {
    key: LaneKey,
    delivery: Delivery,
    /// Whether the worker's credit is held by it: it did not wait in a lane.
    keeps_credit: bool,
}

/// Sends callbacks as they come from the partitions, until there are no more.
pub(super) async fn send_all(
    sender: Arc<CallbackSender>,
    mut receiver: mpsc::UnboundedReceiver<Callback>,
) {
    let config = sender.queues.config();
    let mut dispatch = Dispatch {
        slots: Slots::new(
            config.callback_concurrency as usize,
            config.callback_concurrency_per_host as usize,
        ),
        sender,
        lanes: CallbackLanes::new(),
        sending: JoinSet::new(),
        started_at: Instant::now(),
    };
    let mut renewal = tokio::time::interval(RENEWAL_INTERVAL);
    loop {
        let frees_credit = tokio::select! {
            callback = receiver.recv() => match callback {
                Some(callback) => dispatch.admit(callback),
                None => return,
            },
            Some(result) = dispatch.sending.join_next() => match result {
                Ok(sent) => dispatch.finish(sent),
                // Only the end of the program cancels one; a panic has been logged, and ends this
                // task.
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return,
                },
            },
            _ = renewal.tick() => {
                for callback in dispatch.lanes.iter() {
                    dispatch.sender.record_outcome(callback, ReportKind::Heartbeat { lease_ms: 0 }, "");
                }
                false
            }
        };
        dispatch.send_waiting();
        dispatch.update_metrics();
        if frees_credit {
            let added = dispatch.sender.worker.add_credits(1);
            debug_assert!(added.is_ok(), "as many as there were");
        }
    }
}

struct Dispatch {
    sender: Arc<CallbackSender>,
    slots: Slots,
    lanes: CallbackLanes<Callback>,
    sending: JoinSet<SendResult>,
    started_at: Instant,
}

impl Dispatch {
    /// Elapsed time: a wall clock that jumps lengthens no pause.
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sends a callback, queues it in its lane, or returns it to its queue. Returns whether the
    /// worker may get another one at once.
    fn admit(&mut self, callback: Callback) -> bool {
        let key = (callback.tenant.clone(), receiver_of(&callback.url));
        let now_ms = self.now_ms();
        let admission = if self.lanes.has_waiting(&key) {
            Admission::Busy
        } else {
            self.slots.acquire(&key.1, &key.0, now_ms)
        };
        match admission {
            Admission::Granted => {
                self.spawn(key, callback, true);
                return false;
            }
            Admission::Busy => {
                if let Err((callback, returned_before)) = self.lanes.push(&key, callback) {
                    let steps = 1 + returned_before as u64 / RETURNED_PER_STEP;
                    let delay_ms = (RETURN_STEP_MS * steps).min(RETURN_DELAY_MAX_MS);
                    let mode = Defer::Snooze;
                    self.sender.record_outcome(&callback, ReportKind::Defer { delay_ms, mode }, "");
                }
            }
            Admission::Unreachable(reason) => self.postpone(&callback, &reason),
        }
        true
    }

    /// Counts an attempt that is not made, as the receiver does not answer: the next one comes
    /// later, and a receiver that never answers is given up.
    fn postpone(&self, callback: &Callback, reason: &str) {
        self.sender.count(CallbackOutcome::Postponed);
        let text = format!("not sent, as the receiver does not answer: {reason}");
        self.sender.record_outcome(callback, ReportKind::Fail { permanent: false }, &text);
    }

    fn finish(&mut self, result: SendResult) -> bool {
        let SendResult { key, delivery, keeps_credit } = result;
        let reason = match &delivery {
            Delivery::Answered(_) => String::new(),
            Delivery::Unanswered(reason) => reason.clone(),
        };
        let now_ms = self.now_ms();
        if self.slots.release(&key.1, &key.0, delivery, now_ms) {
            for callback in self.lanes.drain(&key) {
                self.postpone(&callback, &reason);
            }
        }
        keeps_credit
    }

    fn send_waiting(&mut self) {
        let now_ms = self.now_ms();
        while self.lanes.len() > 0 && self.slots.has_room() {
            let slots = &mut self.slots;
            let next =
                self.lanes.pop(|key| slots.acquire(&key.1, &key.0, now_ms) == Admission::Granted);
            let Some((key, callback)) = next else {
                return;
            };
            self.spawn(key, callback, false);
        }
    }

    fn spawn(&mut self, key: LaneKey, callback: Callback, keeps_credit: bool) {
        let sender = self.sender.clone();
        self.sending.spawn(async move {
            let delivery = sender.send(&callback).await;
            SendResult { key, delivery, keeps_credit }
        });
    }

    fn update_metrics(&self) {
        let metrics = &self.sender.queues.inner.metrics.callbacks;
        metrics.in_progress.set(self.slots.in_progress() as i64);
        metrics.waiting.set(self.lanes.len() as i64);
        metrics.unreachable.set(self.slots.unreachable_count() as i64);
    }
}
