//! What the engine tells of itself.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use egret_base::Coded;

use crate::error::DocumentsError;
use crate::model::Written;

/// What became of a write.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Outcome {
    /// `created`, `changed`, `unchanged`, `removed`, or the code of an error.
    pub outcome: &'static str,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Writes that were answered.
    pub writes: Family<Outcome, Counter>,
    /// How many writes were on their way together.
    pub group_writes: Histogram,
    /// How long writes waited for their group, in seconds.
    pub wait: Histogram,
    /// How long it took to look up what a group is about, in seconds.
    pub lookup: Histogram,
    /// How long it took to write a group, its commit included, in seconds.
    pub write: Histogram,
    /// Writes that had to wait for another one that they conflict with.
    pub deferred: Counter,
    /// Groups that were written in two halves, as the server refused one of their writes.
    pub halved: Counter,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            writes: Family::default(),
            group_writes: Histogram::new((0..10).map(|power| f64::from(1 << power))),
            wait: seconds(),
            lookup: seconds(),
            write: seconds(),
            deferred: Counter::default(),
            halved: Counter::default(),
        };
        registry.register(
            "egret_documents_writes",
            "Writes that were answered, by what became of them",
            metrics.writes.clone(),
        );
        registry.register(
            "egret_documents_group_writes",
            "Writes that were looked up and written together",
            metrics.group_writes.clone(),
        );
        registry.register(
            "egret_documents_wait_seconds",
            "How long writes waited until their group began",
            metrics.wait.clone(),
        );
        registry.register(
            "egret_documents_lookup_seconds",
            "How long it took to look up what a group of writes is about",
            metrics.lookup.clone(),
        );
        registry.register(
            "egret_documents_write_seconds",
            "How long it took to write a group, its commit included",
            metrics.write.clone(),
        );
        registry.register(
            "egret_documents_halved",
            "Groups that were written in two halves, as the server refused one of their writes",
            metrics.halved.clone(),
        );
        registry.register(
            "egret_documents_deferred",
            "Writes that had to wait for another one that they conflict with",
            metrics.deferred.clone(),
        );
        metrics
    }

    /// A write was answered.
    pub fn count(&self, told: Result<&Written, &DocumentsError>) {
        let outcome = match told {
            Ok(written) => written.done.as_str(),
            Err(error) => error.code(),
        };
        self.writes.get_or_create(&Outcome { outcome }).inc();
    }
}

/// From 0.1 ms to 0.8 s.
fn seconds() -> Histogram {
    Histogram::new((0..14).map(|power| 0.000_1 * f64::from(1 << power)))
}
