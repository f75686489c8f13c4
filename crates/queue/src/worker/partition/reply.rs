//! Replies of a turn, held until it is committed.

use std::sync::Arc;

use crate::error::QueueError;
use crate::worker::sinks::{EnqueueReceipt as Outcome, ProduceSink, ReportSink};
use crate::worker::submission::OnCommit;

/// A reply that is sent once the turn is committed.
pub(super) enum PendingReply {
    Produced(Arc<dyn ProduceSink>, Vec<(u64, Result<Outcome, QueueError>)>),
    Reported(Arc<dyn ReportSink>, Vec<(u64, Result<(), QueueError>)>),
    Job(OnCommit),
}
