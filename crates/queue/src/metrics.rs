//! Metrics of the queue engine: `egret_queue_<noun>_<unit>`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::core::entry::TaskState;
use crate::core::state::{CALLBACK_QUEUE, State, StateCounts};
use crate::worker::attachment_store::AttachmentStore;

/// Gauges of a queue in one partition.
#[derive(Clone, Debug)]
struct QueueGauges {
    tenant: Box<str>,
    name: Box<str>,
    /// Tasks by state now.
    counts: StateCounts,
    /// Tasks that ever entered each state.
    entered: StateCounts,
    oldest_ready_ms: u64,
    /// Bytes of its tasks' records.
    bytes: u64,
}

/// Metrics of the engine.
pub(crate) struct Metrics {
    /// Time that an append of the log takes, its flush included.
    commits: Histogram,
    /// Records in an append.
    records: Histogram,
    /// Submissions that wait for a partition, when it takes them.
    waiting: Gauge,
    /// By queue, then by partition.
    queue_gauges: Arc<Mutex<BTreeMap<u32, BTreeMap<usize, QueueGauges>>>>,
    /// Callbacks and their receivers.
    pub callbacks: CallbackMetrics,
}

/// How an attempt to send a callback ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallbackOutcome {
    Delivered,
    /// The receiver answered with another status than a success.
    Refused,
    /// The receiver did not answer, or could not be connected to.
    Unanswered,
    /// Nothing was sent, as the receiver counts as unreachable.
    Postponed,
}

impl CallbackOutcome {
    fn as_str(self) -> &'static str {
        match self {
            CallbackOutcome::Delivered => "delivered",
            CallbackOutcome::Refused => "refused",
            CallbackOutcome::Unanswered => "unanswered",
            CallbackOutcome::Postponed => "postponed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Metrics of deliveries of callbacks.
#[derive(Default)]
pub(crate) struct CallbackMetrics {
    attempts: Family<OutcomeLabels, Counter>,
    /// Number of requests in progress.
    pub in_progress: Gauge,
    /// Callbacks that wait for a slot.
    pub waiting: Gauge,
    /// Receivers that count as unreachable.
    pub unreachable: Gauge,
    /// Callbacks by partition and state.
    states: Arc<Mutex<BTreeMap<usize, StateCounts>>>,
}

impl CallbackMetrics {
    /// Counts one attempt with its outcome.
    pub(crate) fn count(&self, outcome: CallbackOutcome) {
        let outcome = outcome.as_str();
        self.attempts.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "callback_attempts",
            "Attempts to send callbacks, by outcome",
            self.attempts.clone(),
        );
        registry.register(
            "callbacks_in_progress",
            "Callbacks that are being sent",
            self.in_progress.clone(),
        );
        registry.register(
            "callbacks_waiting",
            "Callbacks that wait for a slot of their receiver",
            self.waiting.clone(),
        );
        registry.register(
            "callback_receivers_unreachable",
            "Receivers of callbacks that did not answer several times in a row",
            self.unreachable.clone(),
        );
        registry.register_collector(Box::new(CallbackStates(self.states.clone())));
    }
}

/// Callbacks by state, summed over the partitions when the metrics are read.
#[derive(Debug)]
struct CallbackStates(Arc<Mutex<BTreeMap<usize, StateCounts>>>);

#[derive(Clone, Debug, EncodeLabelSet)]
struct CallbackLabels {
    state: &'static str,
}

impl Collector for CallbackStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "callbacks",
            "Callbacks by state; dead ones were given up",
            None,
            gauge.metric_type(),
        )?;
        let parts = lock(&self.0);
        for state in TaskState::ALL {
            let count: u64 = parts.values().map(|counts| counts[state as usize]).sum();
            let labels = CallbackLabels { state: state.as_str() };
            ConstGauge::new(count as i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct StateLabels {
    tenant: String,
    queue: String,
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct QueueLabels {
    tenant: String,
    queue: String,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry, attachments: Arc<AttachmentStore>) -> Self {
        let metrics = Self {
            // From a hundredth of a millisecond to about five seconds.
            commits: Histogram::new(exponential_buckets(0.000_01, 2.0, 20)),
            records: Histogram::new(exponential_buckets(1.0, 2.0, 16)),
            waiting: Gauge::default(),
            queue_gauges: Arc::default(),
            callbacks: CallbackMetrics::default(),
        };
        let registry = registry.sub_registry_with_prefix("egret_queue");
        registry.register_with_unit(
            "commit",
            "Appends to the logs of partitions, flushes included",
            Unit::Seconds,
            metrics.commits.clone(),
        );
        registry.register("commit_records", "Records in an append", metrics.records.clone());
        registry.register(
            "waiting_submissions",
            "Batches of tasks, reports and queries that a partition found waiting in its last \
             round",
            metrics.waiting.clone(),
        );
        registry.register_collector(Box::new(QueueCollector(metrics.queue_gauges.clone())));
        registry.register_collector(Box::new(AttachmentBytes(attachments)));
        metrics.callbacks.register(registry);
        metrics
    }

    /// Records the duration of an append and its number of records.
    pub(crate) fn record_commit(&self, took: Duration, records: usize) {
        self.commits.observe(took.as_secs_f64());
        self.records.observe(records as f64);
    }

    /// Sets the number of waiting submissions.
    pub(crate) fn set_waiting(&self, submissions: usize) {
        self.waiting.set(submissions as i64);
    }

    /// Updates the gauges of a partition.
    pub(crate) fn update_gauges(&self, partition: usize, state: &State) {
        if let Some(queue) = state.queue_by_id(CALLBACK_QUEUE) {
            lock(&self.callbacks.states).insert(partition, queue.counts());
        }
        let mut gauges = lock(&self.queue_gauges);
        for parts in gauges.values_mut() {
            parts.remove(&partition);
        }
        for (id, queue) in state.queues().filter(|(id, _)| *id != CALLBACK_QUEUE) {
            let oldest = queue.oldest_ready_ms(state);
            let one = QueueGauges {
                tenant: queue.tenant.clone(),
                name: queue.name.clone(),
                counts: queue.counts(),
                entered: std::array::from_fn(|state| queue.lists[state].next_ordinal),
                oldest_ready_ms: oldest.map_or(0, |since| state.now_ms().saturating_sub(since)),
                bytes: queue.bytes,
            };
            gauges.entry(id).or_default().insert(partition, one);
        }
        gauges.retain(|_, parts| !parts.is_empty());
    }
}

/// Bytes of attachments by tenant.
#[derive(Debug)]
struct AttachmentBytes(Arc<AttachmentStore>);

#[derive(Clone, Debug, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

impl Collector for AttachmentBytes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "attachment",
            "Attachments of results by tenant, those that are being sent included",
            Some(&Unit::Bytes),
            gauge.metric_type(),
        )?;
        for (tenant, bytes) in self.0.bytes_by_tenant() {
            let labels = TenantLabels { tenant: tenant.to_string() };
            ConstGauge::new(bytes as i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Gauges of all queues, summed over partitions when metrics are scraped.
#[derive(Debug)]
struct QueueCollector(Arc<Mutex<BTreeMap<u32, BTreeMap<usize, QueueGauges>>>>);

impl QueueCollector {
    fn sums(&self) -> Vec<QueueGauges> {
        let gauges = lock(&self.0);
        let sum = |parts: &BTreeMap<usize, QueueGauges>| {
            parts.values().cloned().reduce(|mut sum, part| {
                for state in 0..sum.counts.len() {
                    sum.counts[state] += part.counts[state];
                    sum.entered[state] += part.entered[state];
                }
                sum.oldest_ready_ms = sum.oldest_ready_ms.max(part.oldest_ready_ms);
                sum.bytes += part.bytes;
                sum
            })
        };
        gauges.values().filter_map(sum).collect()
    }
}

impl Collector for QueueCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sums = self.sums();
        let gauge = ConstGauge::new(0_i64);
        let mut family = encoder.encode_descriptor(
            "tasks",
            "Tasks by queue and state",
            None,
            gauge.metric_type(),
        )?;
        for gauges in &sums {
            for state in TaskState::ALL {
                let count = ConstGauge::new(gauges.counts[state as usize] as i64);
                count.encode(family.encode_family(&gauges.state_labels(state))?)?;
            }
        }
        let counter = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor(
            "task_changes",
            "Tasks that entered a state, by queue",
            None,
            counter.metric_type(),
        )?;
        for one in &sums {
            for state in TaskState::ALL {
                let count = ConstCounter::new(one.entered[state as usize]);
                count.encode(family.encode_family(&one.state_labels(state))?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "oldest_ready",
            "How long the task that has been ready longest has been ready",
            Some(&Unit::Seconds),
            gauge.metric_type(),
        )?;
        for one in &sums {
            let age = ConstGauge::new(one.oldest_ready_ms as f64 / 1e3);
            age.encode(family.encode_family(&one.labels())?)?;
        }
        let mut family = encoder.encode_descriptor(
            "task",
            "Payloads, results and errors of tasks by queue",
            Some(&Unit::Bytes),
            gauge.metric_type(),
        )?;
        for one in &sums {
            let bytes = ConstGauge::new(one.bytes as i64);
            bytes.encode(family.encode_family(&one.labels())?)?;
        }
        Ok(())
    }
}

impl QueueGauges {
    fn labels(&self) -> QueueLabels {
        QueueLabels { tenant: self.tenant.to_string(), queue: self.name.to_string() }
    }

    fn state_labels(&self, state: TaskState) -> StateLabels {
        StateLabels {
            tenant: self.tenant.to_string(),
            queue: self.name.to_string(),
            state: state.as_str(),
        }
    }
}
