//! Reports on leased tasks, validated and encoded for their partitions.

use std::sync::Arc;

use crate::error::QueueError;
use crate::model::Lease;
use crate::store::attachment::Manifest;
use crate::store::content::{Format, check_json};
use crate::worker::queue_handle::tenant_number;
use crate::worker::queues::Queues;
use crate::worker::session::check_lease;
use crate::worker::sinks::ReportSink;
use crate::worker::submission::{QueueFilter, Report, ReportBatch, ReportKind, Submission};

/// Maximum bytes of an error or a reason; the doors cut longer ones off.
pub const REPORT_TEXT_BYTES_MAX: usize = 8_000;

/// Reports of one caller, sorted by partition.
pub struct Reports<'q> {
    queues: &'q Queues,
    tenant: &'q str,
    filter: Option<QueueFilter>,
    parts: Vec<ReportPart>,
}

#[derive(Default)]
struct ReportPart {
    items: Vec<Report>,
    bytes: Vec<u8>,
}

impl<'q> Reports<'q> {
    /// An empty batch for a caller of this tenant.
    ///
    /// # Errors
    /// When the engine is not running.
    pub fn new(queues: &'q Queues, tenant: &'q str) -> Result<Self, QueueError> {
        let count = queues.inner.partitions()?.len();
        Ok(Self {
            queues,
            tenant,
            filter: None,
            parts: (0..count).map(|_| ReportPart::default()).collect(),
        })
    }

    /// Restricts the caller to tasks of some queues: any other lease counts as lost.
    pub fn with_filter(mut self, filter: Option<QueueFilter>) -> Self {
        self.filter = filter;
        self
    }

    /// Validates a report and encodes it, under the caller's number for it. `text` is a result, an
    /// error or a reason; `format` applies to a result.
    ///
    /// # Errors
    /// What is wrong with it; the other reports are not affected.
    pub fn add(
        &mut self,
        number: u64,
        lease: &[u8],
        kind: ReportKind,
        text: &[u8],
        format: Format,
    ) -> Result<(), QueueError> {
        self.add_report(number, lease, kind, text, format, None)
    }

    /// As [`Reports::add`], for a completion with attachments.
    ///
    /// # Errors
    /// As [`Reports::add`].
    pub fn add_attached(
        &mut self,
        number: u64,
        lease: &[u8],
        result: &[u8],
        format: Format,
        manifest: &Manifest,
    ) -> Result<(), QueueError> {
        let kind = ReportKind::Complete;
        self.add_report(number, lease, kind, result, format, Some(manifest))
    }

    fn add_report(
        &mut self,
        number: u64,
        lease: &[u8],
        kind: ReportKind,
        text: &[u8],
        format: Format,
        manifest: Option<&Manifest>,
    ) -> Result<(), QueueError> {
        let lease = Lease::from_bytes(lease).ok_or(QueueError::LeaseLost)?;
        let (what, limit, max_bytes) = match kind {
            ReportKind::Complete => {
                let max_bytes = self.queues.config().result_bytes_max.bytes();
                ("the result", "queue.result_bytes_max", max_bytes)
            }
            _ => ("the error or reason", "its maximum", REPORT_TEXT_BYTES_MAX as u64),
        };
        let size_bytes = text.len() as u64;
        if size_bytes > max_bytes {
            return Err(QueueError::TooLarge { what, size_bytes, limit, max_bytes });
        }
        if kind == ReportKind::Complete && format == Format::Json {
            check_json("result", text)?;
        }
        match kind {
            ReportKind::Heartbeat { lease_ms } if lease_ms > 0 => check_lease(lease_ms)?,
            ReportKind::Defer { delay_ms, .. }
                if delay_ms > crate::worker::new_task::DURATION_MAX_MS =>
            {
                return Err(QueueError::Invalid {
                    what: "delay_ms",
                    reason: format!("{delay_ms} ms are more than ten years"),
                });
            }
            _ => {}
        }
        let partition = self.queues.inner.partition_of(lease.shard)?;
        let part = &mut self.parts[partition];
        let start = part.bytes.len() as u32;
        if let Some(Manifest(manifest)) = manifest {
            part.bytes.extend_from_slice(manifest);
        }
        if kind == ReportKind::Complete {
            part.bytes.push(format as u8);
        }
        part.bytes.extend_from_slice(text);
        part.items.push(Report {
            number,
            lease,
            kind,
            attached: manifest.is_some(),
            content: start..part.bytes.len() as u32,
        });
        Ok(())
    }

    /// Submits all reports; `sink` receives the outcome of each.
    pub fn submit(self, sink: &Arc<dyn ReportSink>) {
        for (partition, part) in self.parts.into_iter().enumerate() {
            if part.items.is_empty() {
                continue;
            }
            let numbers: Vec<u64> = part.items.iter().map(|item| item.number).collect();
            let batch = ReportBatch {
                tenant: tenant_number(self.tenant),
                owner: self.tenant.into(),
                filter: self.filter.clone(),
                items: part.items,
                bytes: Arc::new(part.bytes),
                sink: sink.clone(),
            };
            let submission = Submission::Report(batch);
            if let Err(error) = self.queues.inner.submit(partition, submission) {
                let outcomes = numbers.into_iter().map(|number| (number, Err(error.clone())));
                sink.deliver_outcomes(&outcomes.collect::<Vec<_>>());
            }
        }
    }
}
