//! Metrics of the engine.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use egret_base::CodedError;

use crate::error::DocumentsError;
use crate::model::WriteReceipt;

/// Label of a finished write.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// `created`, `changed`, `unchanged`, `removed`, or the code of an error.
    pub outcome: &'static str,
}

#[derive(Clone, Debug)]
pub struct Metrics {
    /// Finished writes, by outcome.
    pub writes: Family<OutcomeLabel, Counter>,
    /// Writes of each group.
    pub group_writes: Histogram,
    /// Time that writes waited for their group, in seconds.
    pub wait: Histogram,
    /// Duration of a group's look-up, in seconds.
    pub lookup: Histogram,
    /// Duration of writing a group including its commit, in seconds.
    pub write: Histogram,
    /// Writes that had to wait for a conflicting one.
    pub deferred: Counter,
    /// Groups split in two because the server rejected one of their writes.
    pub halved: Counter,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            writes: Family::default(),
            group_writes: Histogram::new((0..10).map(|power| f64::from(1 << power))),
            wait: seconds_histogram(),
            lookup: seconds_histogram(),
            write: seconds_histogram(),
            deferred: Counter::default(),
            halved: Counter::default(),
        };
        registry.register(
            "egret_documents_writes",
            "Writes that were answered, by outcome",
            metrics.writes.clone(),
        );
        registry.register(
            "egret_documents_group_writes",
            "Writes that were committed together in one group",
            metrics.group_writes.clone(),
        );
        registry.register(
            "egret_documents_wait_seconds",
            "How long writes waited until their group started",
            metrics.wait.clone(),
        );
        registry.register(
            "egret_documents_lookup_seconds",
            "How long it took to look up the rows that a group of writes concerns",
            metrics.lookup.clone(),
        );
        registry.register(
            "egret_documents_write_seconds",
            "How long it took to write a group, including its commit",
            metrics.write.clone(),
        );
        registry.register(
            "egret_documents_halved",
            "Groups that were split in two because the server rejected one of their writes",
            metrics.halved.clone(),
        );
        registry.register(
            "egret_documents_deferred",
            "Writes that waited for a conflicting write",
            metrics.deferred.clone(),
        );
        metrics
    }

    /// Counts a finished write.
    pub(crate) fn count_write(&self, result: Result<&WriteReceipt, &DocumentsError>) {
        let outcome = match result {
            Ok(receipt) => receipt.outcome.as_str(),
            Err(error) => error.code(),
        };
        self.writes.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

/// Buckets from 0.1 ms to 0.8 s.
fn seconds_histogram() -> Histogram {
    Histogram::new((0..14).map(|power| 0.000_1 * f64::from(1 << power)))
}
