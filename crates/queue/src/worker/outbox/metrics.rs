//! Metrics of the outboxes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Label for the outcome of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

/// Counters of all outboxes together.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutboxMetrics {
    rows: Family<Outcome, Counter>,
    interruptions: Counter,
    /// Outboxes that are being read.
    pub reading: Gauge,
    /// Queues whose rows are held back.
    pub held: Gauge,
}

impl OutboxMetrics {
    /// Makes and registers the metrics of outboxes.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "egret_queue_outbox_rows",
            "Rows of outboxes by outcome: enqueued, replayed (already a task), rejected",
            metrics.rows.clone(),
        );
        registry.register(
            "egret_queue_outbox_interruptions",
            "Interruptions of reading an outbox, such as by a restart of the server",
            metrics.interruptions.clone(),
        );
        registry.register(
            "egret_queue_outbox_readers",
            "Outboxes that are being read",
            metrics.reading.clone(),
        );
        registry.register(
            "egret_queue_outbox_held_queues",
            "Queues that accept no tasks at the moment, so that their rows wait in an outbox",
            metrics.held.clone(),
        );
        metrics
    }

    pub(crate) fn count(&self, outcome: &'static str, rows: usize) {
        let counter = self.rows.get_or_create(&Outcome { outcome });
        counter.inc_by(rows as u64);
    }

    pub(crate) fn count_interruption(&self) {
        self.interruptions.inc();
    }
}
