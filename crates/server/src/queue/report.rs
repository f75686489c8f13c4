//! Reports of workers on the tasks that they lease; each is answered by itself.

use std::sync::Arc;

use egret_queue::limits::REPORT_TEXT_BYTES_MAX;
use egret_queue::model::Lease;
use egret_queue::{
    Format, InFlightKind, Manifest, QueueError, Queues, ReportKind, ReportSink, Reports,
    check_batch,
};

use super::outcome_collector::OutcomeCollector;
use super::rights;
use crate::access::Caller;

/// A worker's report on one task.
pub(crate) struct ReportItem<'a> {
    /// The lease, as bytes.
    pub lease: &'a [u8],
    pub kind: ReportKind,
    /// A result, an error or a reason.
    pub text: &'a [u8],
    /// The format of `text` if it is a result.
    pub format: Format,
    /// Of a completion: its attachments, where it has some.
    pub manifest: Option<&'a Manifest>,
}

/// The first bytes of an error or a reason, cut between characters.
pub(crate) fn truncate_at_char(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(REPORT_TEXT_BYTES_MAX)]
}

/// The manifest of the attachments that a completion names; `None` if it names none.
pub(crate) async fn find_manifest(
    queues: &Queues,
    tenant: &str,
    lease: &[u8],
    names: &[String],
) -> Result<Option<Manifest>, QueueError> {
    if names.is_empty() {
        return Ok(None);
    }
    let lease = Lease::from_bytes(lease).ok_or(QueueError::LeaseLost)?;
    queues.build_manifest(tenant, lease, names).await.map(Some)
}

/// Reports on leased tasks.
pub(crate) async fn report_tasks<'a>(
    queues: &Queues,
    caller: &Caller,
    items: impl ExactSizeIterator<Item = Result<ReportItem<'a>, QueueError>>,
) -> Result<Vec<Result<(), QueueError>>, QueueError> {
    check_batch(items.len())?;
    let in_flight = queues.in_flight(caller.tenant());
    let in_flight = in_flight.acquire(InFlightKind::Reports, items.len()).await;
    let collector =
        OutcomeCollector::<Result<(), QueueError>>::new(items.len(), Arc::new(in_flight));
    submit(queues, caller, items, &collector)?;
    Ok(collector.await_all().await)
}

fn submit<'a>(
    queues: &Queues,
    caller: &Caller,
    items: impl Iterator<Item = Result<ReportItem<'a>, QueueError>>,
    collector: &Arc<OutcomeCollector<Result<(), QueueError>>>,
) -> Result<(), QueueError> {
    let mut refusals = Vec::new();
    let mut reports =
        Reports::new(queues, caller.tenant())?.with_filter(rights::work_filter(caller));
    for (number, item) in (0..).zip(items) {
        let result = item.and_then(|word| match word.manifest {
            Some(manifest) => {
                reports.add_attached(number, word.lease, word.text, word.format, manifest)
            }
            None => reports.add(number, word.lease, word.kind, word.text, word.format),
        });
        if let Err(error) = result {
            refusals.push((number, Err(error)));
        }
    }
    let sink: Arc<dyn ReportSink> = collector.clone();
    reports.submit(&sink);
    if !refusals.is_empty() {
        collector.record(&refusals);
    }
    Ok(())
}
