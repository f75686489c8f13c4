//! Admission to a turn: as much as fits into one batch of the log, and new tasks only while there
//! is room for work on existing ones.

use egret_base::{Condition, TenantShare};
use egret_log::{Batch, Log};

use super::reply::PendingReply;
use crate::error::QueueError;
use crate::worker::admission_queue::FairQueue;
use crate::worker::schedule_runner::TickBudget;
use crate::worker::submission::Submission;

/// Bytes of records in one turn, except that a single submission may be larger.
const TURN_BYTES_MAX: usize = 4 << 20;

/// Bytes of a batch for submissions (7/8); the rest is reserved for timers and claims.
pub(crate) fn content_bytes_max(batch_bytes_max: usize) -> usize {
    batch_bytes_max / 8 * 7
}

/// Bytes of records in one turn while several tenants are active.
const CONTESTED_BYTES_MAX: usize = 512 << 10;

pub(super) struct Intake {
    /// Bytes of records; the rest of the largest batch is for timers and claims, which come after.
    pub content_bytes_max: usize,
    /// Bytes of records up to which tasks are handed out: one more claim always fits.
    pub claim_bytes_max: usize,
    /// Whether this turn may admit submissions or ticks; if not, no disk space is reserved.
    accepts_submissions: bool,
    /// The error for new tasks while the disk is full.
    disk_full: Option<QueueError>,
}

impl Intake {
    /// The intake for the present log. An admitted submission must find room: a turn whose new
    /// tasks the log does not take would block the work that makes room. So the reserve is
    /// allocated before anything is admitted.
    pub(crate) fn new(log: &impl Log, reserve_bytes: u64, accepts_submissions: bool) -> Self {
        let is_full = accepts_submissions && log.reserve(reserve_bytes).is_err();
        Self {
            accepts_submissions,
            content_bytes_max: content_bytes_max(log.batch_bytes_max()),
            claim_bytes_max: log.batch_bytes_max() / 16 * 15,
            disk_full: is_full.then(|| QueueError::DiskFull { needed_bytes: reserve_bytes }),
        }
    }

    /// Updates the condition of a full log.
    pub(crate) fn update_condition(&self, log_full: &Condition) {
        if !self.accepts_submissions {
            return;
        }
        match &self.disk_full {
            Some(error) => log_full.fail(error, "the queue accepts no tasks"),
            None => log_full.recover("the queue accepts tasks again"),
        }
    }

    /// Budget of ticks: their tasks are new ones too, and most of the batch is for submissions.
    pub(crate) fn tick_budget(&self, share: TenantShare, tasks: u64) -> TickBudget {
        TickBudget {
            tasks: match self.disk_full {
                Some(_) => 0,
                None => share.total.max.saturating_sub(tasks),
            },
            share,
            bytes: self.content_bytes_max / 8,
        }
    }

    /// Whether this turn, which has `items` already, takes the next submission: it fits, or it fits
    /// no turn at all and must be rejected by [`Self::admit`]. While several tenants are active,
    /// one that is larger than a turn gets a turn of its own.
    pub(crate) fn has_room(&self, waiting: &FairQueue, items: usize, batch: &Batch) -> bool {
        let is_contested = waiting.is_contested();
        let turn_bytes = if is_contested { CONTESTED_BYTES_MAX } else { TURN_BYTES_MAX };
        if batch.frame_bytes() >= turn_bytes.min(self.content_bytes_max) {
            return false;
        }
        let next_bytes = waiting.peek().map_or(0, Submission::record_bytes);
        if is_contested && items > 0 && batch.frame_bytes() + next_bytes > turn_bytes {
            return false;
        }
        next_bytes > self.content_bytes_max
            || batch.frame_bytes() + next_bytes <= self.content_bytes_max
    }

    /// Admits a submission, or refuses it.
    pub(crate) fn admit(&self, submission: Submission) -> Result<Submission, PendingReply> {
        let size_bytes = submission.record_bytes();
        let too_large = (size_bytes > self.content_bytes_max).then_some(QueueError::TooLarge {
            what: "the tasks of the request for one partition",
            size_bytes: size_bytes as u64,
            limit: "the largest batch of the log",
            max_bytes: self.content_bytes_max as u64,
        });
        let disk_full = self.disk_full.as_ref();
        match (submission, too_large.as_ref()) {
            (Submission::Enqueue(batch), too_large) => match too_large.or(disk_full) {
                None => Ok(Submission::Enqueue(batch)),
                Some(error) => {
                    let outcomes = refuse_each(batch.items.iter().map(|item| item.number), error);
                    Err(PendingReply::Produced(batch.sink, outcomes))
                }
            },
            (Submission::Report(batch), Some(error)) => {
                let outcomes = refuse_each(batch.items.iter().map(|item| item.number), error);
                Err(PendingReply::Reported(batch.sink, outcomes))
            }
            (other, _) => Ok(other),
        }
    }
}

fn refuse_each<T>(
    numbers: impl Iterator<Item = u64>,
    error: &QueueError,
) -> Vec<(u64, Result<T, QueueError>)> {
    numbers.map(|number| (number, Err(error.clone()))).collect()
}
