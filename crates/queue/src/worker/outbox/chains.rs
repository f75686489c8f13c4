//! Rows of a chain: all become tasks, or none.

use super::{Measure, defect_error, is_permanent, new_task, unreadable};
use crate::error::QueueError;
use crate::model::TaskId;
use crate::store::outbox::{CheckedRow, Defect};
use crate::worker::chain::{ChainRefusal, ChainTask};
use crate::worker::new_task::NewTask;
use crate::worker::queues::Queues;
use crate::worker::sinks::EnqueueReceipt;

/// Makes tasks of the rows of a chain; the results are in their order. Where one is refused all
/// are, either permanently or for now.
pub(super) async fn enqueue_chain_rows(
    queues: &Queues,
    rows: &[&CheckedRow],
) -> Vec<Result<EnqueueReceipt, QueueError>> {
    match try_enqueue_chain(queues, rows).await {
        Ok(receipts) => receipts.into_iter().map(Ok).collect(),
        Err(refusal) => {
            let error_for = |index| {
                if is_permanent(&refusal.error) {
                    refusal.error_for(index)
                } else {
                    refusal.error.clone()
                }
            };
            (0..rows.len()).map(|place| Err(error_for(place))).collect()
        }
    }
}

async fn try_enqueue_chain(
    queues: &Queues,
    rows: &[&CheckedRow],
) -> Result<Vec<EnqueueReceipt>, ChainRefusal> {
    let config = queues.config();
    let chain = Measure {
        what: "the chain",
        limit: "queue.chain_bytes_max",
        max_bytes: config.chain_bytes_max.bytes(),
    };
    let mut dependencies = Vec::with_capacity(rows.len());
    for (index, checked_row) in rows.iter().enumerate() {
        match &checked_row.defect {
            None => dependencies.push(
                row_dependencies(checked_row, rows).map_err(|error| refusal_at(index, error))?,
            ),
            // No row of the chain is more at fault than another.
            Some(defect @ Defect::TooLarge { .. }) => {
                return Err(defect_error(defect, &chain).into());
            }
            Some(defect) => return Err(refusal_at(index, defect_error(defect, &chain))),
        }
    }
    let mut tasks = Vec::with_capacity(rows.len());
    for (place, (found, (ids, links))) in rows.iter().zip(&dependencies).enumerate() {
        let queue = queues.get_or_create_queue(&config.outbox_tenant, &found.row.queue).await;
        tasks.push(ChainTask {
            queue: queue.map_err(|error| refusal_at(place, error))?,
            task: NewTask { after: ids, ..new_task(&found.row) },
            links: links.clone(),
            origin: Some((&found.row.key, config.outbox_window.0)),
        });
    }
    queues.enqueue_chain(&tasks).await
}

fn refusal_at(index: usize, error: QueueError) -> ChainRefusal {
    ChainRefusal { task: Some(index), error }
}

/// The tasks that a row waits for, and the indexes of the rows that it waits for.
fn row_dependencies(
    checked_row: &CheckedRow,
    rows: &[&CheckedRow],
) -> Result<(Vec<TaskId>, Vec<usize>), QueueError> {
    let (mut ids, mut links) = (Vec::new(), Vec::new());
    for name in &checked_row.row.after {
        match rows.iter().position(|other| other.row.key == *name) {
            Some(link) => links.push(link),
            None => ids.push(name.parse().map_err(|_| unreadable(name))?),
        }
    }
    Ok((ids, links))
}
