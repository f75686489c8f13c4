//! Metrics of the branches engine: `egret_branches_<noun>_<unit>`.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::core::pool::{PoolEntry, Stage};
use crate::model::{Branch, BranchState, Preset};
use crate::stopwatch::Stopwatch;
use crate::store::volume::Space;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabel {
    phase: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PresetLabel {
    preset: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabel {
    preset: &'static str,
    stage: &'static str,
}

/// What the engine counts.
pub(crate) struct Metrics {
    creates: Counter,
    leases: Counter,
    misses: Counter,
    pool_phases: Family<PhaseLabel, Histogram>,
    pool: Family<PoolLabel, Gauge>,
    pool_targets: Family<PresetLabel, Gauge>,
    create_failures: Counter,
    destroys: Counter,
    postmaster_exits: Counter,
    phases: Family<PhaseLabel, Histogram>,
    delete_phases: Family<PhaseLabel, Histogram>,
    queries: Histogram,
    states: Family<StateLabel, Gauge>,
    templates: Gauge,
    volume_size: Gauge<i64>,
    volume_free: Gauge<i64>,
}

/// From a tenth of a millisecond to about half a minute.
fn seconds_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 18))
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            creates: Counter::default(),
            leases: Counter::default(),
            misses: Counter::default(),
            pool_phases: Family::new_with_constructor(seconds_histogram),
            pool: Family::default(),
            pool_targets: Family::default(),
            create_failures: Counter::default(),
            destroys: Counter::default(),
            postmaster_exits: Counter::default(),
            phases: Family::new_with_constructor(seconds_histogram),
            delete_phases: Family::new_with_constructor(seconds_histogram),
            queries: seconds_histogram(),
            states: Family::default(),
            templates: Gauge::default(),
            volume_size: Gauge::default(),
            volume_free: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("egret_branches");
        registry.register("creates", "Branches created", metrics.creates.clone());
        registry.register(
            "create_failures",
            "Creations that failed",
            metrics.create_failures.clone(),
        );
        registry.register("destroys", "Branches destroyed", metrics.destroys.clone());
        registry.register(
            "postmaster_ends",
            "Postmasters that exited unexpectedly",
            metrics.postmaster_exits.clone(),
        );
        registry.register(
            "create_phase_seconds",
            "Time of each phase of a creation",
            metrics.phases.clone(),
        );
        registry.register(
            "delete_phase_seconds",
            "Time of each phase of deleting the files of a destroyed branch",
            metrics.delete_phases.clone(),
        );
        registry.register("query_seconds", "Queries through the API", metrics.queries.clone());
        metrics.register_pools(registry);
        registry.register("by_state", "Branches by state", metrics.states.clone());
        registry.register("templates", "Templates", metrics.templates.clone());
        registry.register("volume_size_bytes", "Size of the volume", metrics.volume_size.clone());
        registry.register(
            "volume_free_bytes",
            "Free space on the volume",
            metrics.volume_free.clone(),
        );
        metrics
    }

    fn register_pools(&self, registry: &mut Registry) {
        registry.register("pool_leases", "Creations that the pool served", self.leases.clone());
        registry.register(
            "pool_misses",
            "Creations that found the pool empty",
            self.misses.clone(),
        );
        registry.register(
            "pool_phase_seconds",
            "Time of each phase of filling the pools",
            self.pool_phases.clone(),
        );
        registry.register(
            "pool_branches",
            "Branches in the pools by preset and stage",
            self.pool.clone(),
        );
        registry.register("pool_target", "Target size of each pool", self.pool_targets.clone());
    }

    pub(crate) fn count_creation(&self, stopwatch: &Stopwatch) {
        self.creates.inc();
        observe_phases(&self.phases, stopwatch);
    }

    /// The files behind a tombstone are gone.
    pub(crate) fn observe_deletion(&self, stopwatch: &Stopwatch) {
        observe_phases(&self.delete_phases, stopwatch);
    }

    /// A creation that took its branch from the pool.
    pub(crate) fn count_lease(&self, stopwatch: &Stopwatch) {
        self.leases.inc();
        self.count_creation(stopwatch);
    }

    /// A creation that found its pool empty.
    pub(crate) fn count_miss(&self) {
        self.misses.inc();
    }

    pub(crate) fn observe_pool_phase(&self, phase: &str, elapsed: Duration) {
        let label = PhaseLabel { phase: phase.to_owned() };
        let time = elapsed.as_secs_f64();
        self.pool_phases.get_or_create(&label).observe(time);
    }

    /// Takes over how the pools stand.
    pub(crate) fn observe_pools(&self, entries: &[PoolEntry], targets: &BTreeMap<Preset, u32>) {
        for (preset, target) in targets {
            let preset = preset.as_str();
            let label = PresetLabel { preset };
            self.pool_targets.get_or_create(&label).set(i64::from(*target));
            for (stage, name) in Stage::ALL {
                let is_at_stage =
                    |entry: &&PoolEntry| entry.preset.as_str() == preset && entry.stage == stage;
                let count = entries.iter().filter(is_at_stage).count();
                let label = PoolLabel { preset, stage: name };
                self.pool.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }

    pub(crate) fn count_failure(&self) {
        self.create_failures.inc();
    }

    pub(crate) fn count_destruction(&self) {
        self.destroys.inc();
    }

    pub(crate) fn count_postmaster_exit(&self) {
        self.postmaster_exits.inc();
    }

    pub(crate) fn observe_query(&self, elapsed: Duration) {
        self.queries.observe(elapsed.as_secs_f64());
    }

    /// Takes over what the registry and the volume say.
    pub(crate) fn observe(&self, branches: &[Branch], templates: usize, space: Space) {
        for state in BranchState::TEXTS {
            let count = branches.iter().filter(|branch| branch.state.as_str() == *state).count();
            self.states
                .get_or_create(&StateLabel { state })
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.templates.set(i64::try_from(templates).unwrap_or(i64::MAX));
        self.volume_size.set(i64::try_from(space.size).unwrap_or(i64::MAX));
        self.volume_free.set(i64::try_from(space.free).unwrap_or(i64::MAX));
    }
}

fn observe_phases(phases: &Family<PhaseLabel, Histogram>, stopwatch: &Stopwatch) {
    for phase in stopwatch.phases() {
        let label = PhaseLabel { phase: phase.name.clone() };
        phases.get_or_create(&label).observe(phase.ms / 1e3);
    }
}
