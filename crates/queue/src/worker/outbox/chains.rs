//! Rows of a chain: all become tasks, or none.

use super::{Measure, error_of, is_for_good, task, unreadable};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::store::outbox::{CheckedRow, Defect};
use crate::worker::chain::{ChainRefusal, ChainTask};
use crate::worker::new_task::NewTask;
use crate::worker::queues::Queues;
use crate::worker::sinks::EnqueueReceipt;

/// Makes tasks of the rows of a chain; the results are in their order. Where one is refused all
/// are, either permanently or for now.
pub(super) async fn hand_over(
    queues: &Queues,
    rows: &[&CheckedRow],
) -> Vec<Result<EnqueueReceipt, QueueError>> {
    match make(queues, rows).await {
        Ok(made) => made.into_iter().map(Ok).collect(),
        Err(refusal) => {
            let of = |place| {
                if is_for_good(&refusal.error) {
                    refusal.of(place)
                } else {
                    refusal.error.clone()
                }
            };
            (0..rows.len()).map(|place| Err(of(place))).collect()
        }
    }
}

async fn make(queues: &Queues, rows: &[&CheckedRow]) -> Result<Vec<EnqueueReceipt>, ChainRefusal> {
    let config = queues.config();
    let chain = Measure {
        what: "the chain",
        limit: "queue.chain_bytes_max",
        max_bytes: config.chain_bytes_max.bytes(),
    };
    let mut waits = Vec::with_capacity(rows.len());
    for (place, found) in rows.iter().enumerate() {
        match &found.defect {
            None => waits.push(waits_of(found, rows).map_err(|error| refused(place, error))?),
            // No row of the chain is more at fault than another.
            Some(defect @ Defect::TooLarge { .. }) => return Err(error_of(defect, &chain).into()),
            Some(defect) => return Err(refused(place, error_of(defect, &chain))),
        }
    }
    let mut tasks = Vec::with_capacity(rows.len());
    for (place, (found, (ids, links))) in rows.iter().zip(&waits).enumerate() {
        let queue = queues.queue(&config.outbox_tenant, &found.row.queue).await;
        tasks.push(ChainTask {
            queue: queue.map_err(|error| refused(place, error))?,
            task: NewTask {
                after: ids,
                ..task(&found.row)
            },
            links: links.clone(),
            origin: Some((&found.row.key, config.outbox_window.0)),
        });
    }
    queues.enqueue_chain(&tasks).await
}

fn refused(place: usize, error: QueueError) -> ChainRefusal {
    ChainRefusal {
        task: Some(place),
        error,
    }
}

/// The tasks that a row waits for, and the indexes of the rows that it waits for.
fn waits_of(
    found: &CheckedRow,
    rows: &[&CheckedRow],
) -> Result<(Vec<TaskId>, Vec<usize>), QueueError> {
    let (mut ids, mut links) = (Vec::new(), Vec::new());
    for name in &found.row.after {
        match rows.iter().position(|other| other.row.key == *name) {
            Some(link) => links.push(link),
            None => ids.push(name.parse().map_err(|_| unreadable(name))?),
        }
    }
    Ok((ids, links))
}
