//! Metrics of the views engine.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Labels of what refreshes and tasks came to.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct OutcomeLabels {
    /// Of a refresh `incremental`, `full` or `failed`; of a task `taken` or `refused`.
    pub outcome: &'static str,
}

/// Labels of the number of views in a state.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct StateLabels {
    pub database: String,
    /// `new`, `active`, `failing` or `suspended`.
    pub state: &'static str,
}

/// Labels of what is measured by database.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct DatabaseLabels {
    pub database: String,
}

/// Counters, gauges and histograms of the engine.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Refreshes of views that did something.
    pub refreshes: Family<OutcomeLabels, Counter>,
    /// How long refreshes took, in seconds.
    pub refresh_seconds: Histogram,
    /// How long refreshes waited for locks, in seconds.
    pub wait_seconds: Histogram,
    /// Rows of changes that were read.
    pub changes: Counter,
    /// Rows of views that were added, changed and removed.
    pub rows: Counter,
    /// Views that a comparison found to differ from their query.
    pub drifts: Counter,
    /// Change sets that refreshes recorded for followed views.
    pub change_sets: Counter,
    /// Open subscriptions to views, by server-sent events and gRPC.
    pub followers: Gauge,
    /// Tasks that were made of change sets, and attempts that the queue refused.
    pub change_tasks: Family<OutcomeLabels, Counter>,
    pub views: Family<StateLabels, Gauge>,
    /// Size of the tables for changes, in bytes.
    pub changes_bytes: Family<DatabaseLabels, Gauge>,
    /// Dead rows of these tables, as the server estimates: removed, and their space not yet free.
    pub changes_dead_rows: Family<DatabaseLabels, Gauge>,
}

/// Buckets from a quarter of a millisecond to two minutes, each twice the one before.
fn duration_histogram() -> Histogram {
    Histogram::new((0..20).map(|power| 0.000_25 * f64::from(1 << power)))
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            refreshes: Family::default(),
            refresh_seconds: duration_histogram(),
            wait_seconds: duration_histogram(),
            changes: Counter::default(),
            rows: Counter::default(),
            drifts: Counter::default(),
            change_sets: Counter::default(),
            followers: Gauge::default(),
            change_tasks: Family::default(),
            views: Family::default(),
            changes_bytes: Family::default(),
            changes_dead_rows: Family::default(),
        };
        registry.register(
            "egret_views_refreshes",
            "Refreshes of views that had something to do, by outcome",
            metrics.refreshes.clone(),
        );
        registry.register(
            "egret_views_refresh_seconds",
            "How long refreshes with something to do took",
            metrics.refresh_seconds.clone(),
        );
        registry.register(
            "egret_views_wait_seconds",
            "How long refreshes waited for locks",
            metrics.wait_seconds.clone(),
        );
        registry.register(
            "egret_views_changes",
            "Rows of changes that refreshes read; an update counts as two",
            metrics.changes.clone(),
        );
        registry.register(
            "egret_views_rows",
            "Rows of views that refreshes inserted, updated and deleted",
            metrics.rows.clone(),
        );
        registry.register(
            "egret_views_drifts",
            "Views that a scheduled comparison found to differ from their query",
            metrics.drifts.clone(),
        );
        metrics.register_following(registry);
        registry.register("egret_views_views", "Views by state", metrics.views.clone());
        registry.register(
            "egret_views_changes_bytes",
            "Disk space of the change tables",
            metrics.changes_bytes.clone(),
        );
        registry.register(
            "egret_views_changes_dead_rows",
            "Dead rows of the change tables",
            metrics.changes_dead_rows.clone(),
        );
        metrics
    }

    fn register_following(&self, registry: &mut Registry) {
        registry.register(
            "egret_views_change_sets",
            "Change sets that refreshes recorded for followed views",
            self.change_sets.clone(),
        );
        registry.register(
            "egret_views_followers",
            "Followers of views, by server-sent events and gRPC",
            self.followers.clone(),
        );
        registry.register(
            "egret_views_change_tasks",
            "Change sets sent to queues as tasks, by whether the queue accepted them",
            self.change_tasks.clone(),
        );
    }
}
