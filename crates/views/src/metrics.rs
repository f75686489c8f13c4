//! What the engine tells of itself.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What a refresh did.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct Outcome {
    /// Of a refresh `incremental`, `full` or `failed`; of a task `taken` or `refused`.
    pub outcome: &'static str,
}

/// A state of views.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct InState {
    /// The database.
    pub database: String,
    /// `new`, `active`, `failing` or `suspended`.
    pub state: &'static str,
}

/// Of a database.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct InDatabase {
    /// Its name.
    pub database: String,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Refreshes of views that did something.
    pub refreshes: Family<Outcome, Counter>,
    /// How long they took, in seconds.
    pub refresh_seconds: Histogram,
    /// How long they waited for locks, in seconds.
    pub wait_seconds: Histogram,
    /// Rows of changes that were read.
    pub changes: Counter,
    /// Rows of views that were added, changed and removed.
    pub rows: Counter,
    /// Views that were found not to be what their query says.
    pub drifts: Counter,
    /// Change sets that were kept of views that are followed.
    pub change_sets: Counter,
    /// Those who follow views.
    pub followers: Gauge,
    /// Tasks that were made of change sets, and attempts that were refused.
    pub change_tasks: Family<Outcome, Counter>,
    /// Views by state.
    pub views: Family<InState, Gauge>,
    /// What the tables for changes take, in bytes.
    pub changes_bytes: Family<InDatabase, Gauge>,
    /// Rows of them that are removed and whose place is not free yet, as the server estimates.
    pub changes_dead_rows: Family<InDatabase, Gauge>,
}

/// From a quarter of a millisecond to two minutes.
fn seconds() -> Histogram {
    Histogram::new((0..20).map(|power| 0.000_25 * f64::from(1 << power)))
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            refreshes: Family::default(),
            refresh_seconds: seconds(),
            wait_seconds: seconds(),
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
            "Refreshes of views that did something, by what they did",
            metrics.refreshes.clone(),
        );
        registry.register(
            "egret_views_refresh_seconds",
            "How long refreshes took that did something",
            metrics.refresh_seconds.clone(),
        );
        registry.register(
            "egret_views_wait_seconds",
            "How long refreshes waited for locks",
            metrics.wait_seconds.clone(),
        );
        registry.register(
            "egret_views_changes",
            "Rows of changes that refreshes read, each side of an update being one",
            metrics.changes.clone(),
        );
        registry.register(
            "egret_views_rows",
            "Rows of views that refreshes added, changed and removed",
            metrics.rows.clone(),
        );
        registry.register(
            "egret_views_drifts",
            "Views that a comparison on schedule found not to be what their query says",
            metrics.drifts.clone(),
        );
        metrics.register_following(registry);
        registry.register("egret_views_views", "Views by state", metrics.views.clone());
        registry.register(
            "egret_views_changes_bytes",
            "What the tables for changes take",
            metrics.changes_bytes.clone(),
        );
        registry.register(
            "egret_views_changes_dead_rows",
            "Rows of the tables for changes that are removed and whose place is not free yet",
            metrics.changes_dead_rows.clone(),
        );
        metrics
    }

    fn register_following(&self, registry: &mut Registry) {
        registry.register(
            "egret_views_change_sets",
            "Change sets that refreshes kept of views that are followed",
            self.change_sets.clone(),
        );
        registry.register(
            "egret_views_followers",
            "Those who follow views, by server-sent events and gRPC",
            self.followers.clone(),
        );
        registry.register(
            "egret_views_change_tasks",
            "Change sets of which a queue was to make a task, by whether it took it",
            self.change_tasks.clone(),
        );
    }
}
