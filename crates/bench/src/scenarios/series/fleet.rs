//! What is measured: the metrics of a fleet of nodes with pods, as exporters of containers, of
//! services and of nodes show them. Every series is a function of its number.

use super::shape::{CounterShape, PeriodicShape, ResetSchedule, Shape, mix, unit_fraction};

/// Between two samples of a series, in milliseconds.
pub(super) const INTERVAL_MS: i64 = 15_000;

/// Samples are so far from the whole multiples of [`INTERVAL_MS`] at least: whether a window is
/// open or closed at its ends makes no difference to a query about such times.
const MARGIN_MS: u64 = 500;

const PODS_PER_NODE: u32 = 4;
const SERIES_PER_POD: u32 = 39;
const NODE_METRICS: [&str; 4] =
    [LOAD1, "node_load5", "node_load15", "node_memory_MemAvailable_bytes"];
/// Series of a node and its pods.
const SERIES_PER_NODE: u32 = PODS_PER_NODE * SERIES_PER_POD + NODE_METRICS.len() as u32;
const PODS_PER_SERVICE: u32 = 12;
const SERVICES_PER_NAMESPACE: u32 = 5;

/// One in so many pods restarts every 2^[`RESET_PERIOD_BITS`] steps, which is about two hours.
const RESTARTING_ONE_IN: u64 = 8;
const RESET_PERIOD_BITS: u32 = 9;

pub(super) const CPU_SECONDS: &str = "container_cpu_usage_seconds_total";
pub(super) const MEMORY_BYTES: &str = "container_memory_working_set_bytes";
pub(super) const REQUESTS_TOTAL: &str = "http_requests_total";
pub(super) const DURATION_BUCKET: &str = "http_request_duration_seconds_bucket";
pub(super) const DURATION_SUM: &str = "http_request_duration_seconds_sum";
pub(super) const DURATION_COUNT: &str = "http_request_duration_seconds_count";
pub(super) const POD_PHASE: &str = "kube_pod_status_phase";
pub(super) const LOAD1: &str = "node_load1";

const CONTAINERS: [&str; 2] = ["app", "proxy"];
const METHODS: [&str; 2] = ["GET", "POST"];
const STATUS_CODES: [&str; 3] = ["200", "404", "500"];
const PHASES: [&str; 3] = ["Running", "Pending", "Failed"];
const BUCKET_BOUNDS: [(&str, f64); 11] = [
    ("0.005", 0.005),
    ("0.01", 0.01),
    ("0.025", 0.025),
    ("0.05", 0.05),
    ("0.1", 0.1),
    ("0.25", 0.25),
    ("0.5", 0.5),
    ("1", 1.0),
    ("2.5", 2.5),
    ("5", 5.0),
    ("+Inf", f64::INFINITY),
];
const ZONES: [&str; 3] = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];
const SERVICES: [&str; 16] = [
    "accounts",
    "basket",
    "billing",
    "catalog",
    "checkout",
    "delivery",
    "gateway",
    "identity",
    "inventory",
    "mailer",
    "orders",
    "payments",
    "pricing",
    "reports",
    "reviews",
    "search",
];

/// So many series, and when their first samples are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    pub(super) seed: u64,
    pub(super) series: u32,
    /// Step 0, in milliseconds of Unix time; a multiple of a minute.
    pub(super) begin_ms: i64,
}

/// Label names and values, ascending by name.
pub(super) type LabelPairs = Vec<(&'static str, String)>;

/// Which series of a pod a number stands for.
#[derive(Clone, Copy)]
enum Slot {
    Cpu(usize),
    Memory(usize),
    Requests { method: usize, code: usize },
    Bucket { method: usize, bound: usize },
    Sum { method: usize },
    Count { method: usize },
    Phase(usize),
}

impl Slot {
    fn from_number(number: u32) -> Self {
        let number = number as usize;
        let duration = BUCKET_BOUNDS.len() + 2;
        match number {
            0..2 => Self::Cpu(number),
            2..4 => Self::Memory(number - 2),
            4..10 => Self::Requests {
                method: (number - 4) / STATUS_CODES.len(),
                code: (number - 4) % STATUS_CODES.len(),
            },
            10..36 => {
                let method = (number - 10) / duration;
                match (number - 10) % duration {
                    bound if bound < BUCKET_BOUNDS.len() => Self::Bucket { method, bound },
                    offset if offset == BUCKET_BOUNDS.len() => Self::Sum { method },
                    _ => Self::Count { method },
                }
            }
            _ => Self::Phase(number - 36),
        }
    }
}

impl Fleet {
    pub(super) fn node_count(&self) -> u32 {
        self.series.div_ceil(SERIES_PER_NODE)
    }

    fn pod_count(&self) -> u32 {
        self.node_count() * PODS_PER_NODE
    }

    pub(super) fn service_count(&self) -> u32 {
        self.pod_count().div_ceil(PODS_PER_SERVICE)
    }

    pub(super) fn namespace_count(&self) -> u32 {
        self.service_count().div_ceil(SERVICES_PER_NAMESPACE)
    }

    /// When a step begins, in milliseconds; all its samples are before the next one begins.
    pub(super) fn step_ms(&self, step: u64) -> i64 {
        self.begin_ms + step as i64 * INTERVAL_MS
    }

    /// How long after a step's begin a series has its sample: series of one target have it
    /// together.
    pub(super) fn shift_ms(&self, series: u32) -> i64 {
        let target = match Self::locate(series) {
            (node, None) => u64::from(node) << 32,
            (_, Some((pod, _))) => u64::from(pod),
        };
        let range_ms = INTERVAL_MS as u64 - 2 * MARGIN_MS;
        (MARGIN_MS + mix(self.seed ^ 0x7a12, target) % range_ms) as i64
    }

    /// Node, and pod with slot or the number of a node's metric.
    fn locate(series: u32) -> (u32, Option<(u32, u32)>) {
        let (node, offset) = (series / SERIES_PER_NODE, series % SERIES_PER_NODE);
        let pod = (offset < PODS_PER_NODE * SERIES_PER_POD).then(|| {
            let pod = node * PODS_PER_NODE + offset / SERIES_PER_POD;
            (pod, offset % SERIES_PER_POD)
        });
        (node, pod)
    }

    pub(super) fn node_name(&self, node: u32) -> String {
        format!("node-{node:04}")
    }

    /// The service that a pod belongs to.
    fn service_of(&self, pod: u32) -> u32 {
        pod % self.service_count()
    }

    pub(super) fn service_name(&self, service: u32) -> String {
        let name = SERVICES[service as usize % SERVICES.len()];
        match service as usize / SERVICES.len() {
            0 => name.to_owned(),
            generation => format!("{name}-{generation}"),
        }
    }

    pub(super) fn namespace_name(&self, namespace: u32) -> String {
        format!("team-{namespace:02}")
    }

    pub(super) fn zone_name(&self, number: u32) -> &'static str {
        ZONES[number as usize % ZONES.len()]
    }

    pub(super) fn pod_name(&self, pod: u32) -> String {
        let random = mix(self.seed ^ 0x90d, u64::from(pod));
        let service = self.service_name(self.service_of(pod));
        format!("{service}-{:08x}-{pod:05x}", random as u32)
    }

    /// The labels of a series.
    pub(super) fn labels(&self, series: u32) -> LabelPairs {
        let (node, pod) = Self::locate(series);
        let mut labels: LabelPairs = vec![
            ("cluster", format!("eu-{}", node % 2)),
            ("zone", self.zone_name(node).to_owned()),
        ];
        match pod {
            Some((pod, slot)) => {
                self.add_pod_labels(node, pod, Slot::from_number(slot), &mut labels)
            }
            None => {
                let metric = series % SERIES_PER_NODE - PODS_PER_NODE * SERIES_PER_POD;
                labels.extend([
                    ("__name__", NODE_METRICS[metric as usize].to_owned()),
                    ("env", "production".to_owned()),
                    ("instance", instance_address(node, 9_100)),
                    ("job", "node".to_owned()),
                    ("node", self.node_name(node)),
                ]);
            }
        }
        labels.sort_unstable_by_key(|(name, _)| *name);
        labels
    }

    fn add_pod_labels(&self, node: u32, pod: u32, slot: Slot, labels: &mut LabelPairs) {
        let service = self.service_of(pod);
        let namespace = service % self.namespace_count();
        let (name, job, port) = match slot {
            Slot::Cpu(_) => (CPU_SECONDS, "cadvisor", 10_250),
            Slot::Memory(_) => (MEMORY_BYTES, "cadvisor", 10_250),
            Slot::Requests { .. } => (REQUESTS_TOTAL, "service", 8_080),
            Slot::Bucket { .. } => (DURATION_BUCKET, "service", 8_080),
            Slot::Sum { .. } => (DURATION_SUM, "service", 8_080),
            Slot::Count { .. } => (DURATION_COUNT, "service", 8_080),
            Slot::Phase(_) => (POD_PHASE, "kube-state-metrics", 8_443),
        };
        labels.extend([
            ("__name__", name.to_owned()),
            ("env", ["production", "staging"][namespace as usize % 2].to_owned()),
            ("instance", instance_address(node, port)),
            ("job", job.to_owned()),
            ("namespace", self.namespace_name(namespace)),
            ("pod", self.pod_name(pod)),
            ("service", self.service_name(service)),
        ]);
        let mut push_label = |name, value: &str| labels.push((name, value.to_owned()));
        match slot {
            Slot::Cpu(container) | Slot::Memory(container) => {
                push_label("container", CONTAINERS[container]);
                push_label("node", &self.node_name(node));
            }
            Slot::Requests { method, code } => {
                push_label("method", METHODS[method]);
                push_label("code", STATUS_CODES[code]);
            }
            Slot::Bucket { method, bound } => {
                push_label("method", METHODS[method]);
                push_label("le", BUCKET_BOUNDS[bound].0);
            }
            Slot::Sum { method } | Slot::Count { method } => push_label("method", METHODS[method]),
            Slot::Phase(phase) => {
                push_label("node", &self.node_name(node));
                push_label("phase", PHASES[phase]);
            }
        }
    }

    /// Values of a series over time.
    pub(super) fn shape(&self, series: u32) -> Shape {
        let salt = mix(self.seed, u64::from(series));
        let (node, pod) = Self::locate(series);
        match pod {
            Some((pod, slot)) => self.pod_shape(pod, Slot::from_number(slot), salt),
            None if (series + 1).is_multiple_of(SERIES_PER_NODE) => {
                gauge(log_uniform(2e9, 60e9, mix(self.seed, node.into())), salt, 1.0 / 4_096.0, 2)
            }
            None => gauge(log_uniform(0.4, 8.0, mix(self.seed, node.into())), salt, 100.0, 0),
        }
    }

    fn pod_shape(&self, pod: u32, slot: Slot, salt: u64) -> Shape {
        let pod_salt = mix(self.seed ^ 0x51a7e, u64::from(pod));
        let resets = match pod_salt % RESTARTING_ONE_IN {
            0 => ResetSchedule::from_bits(RESET_PERIOD_BITS, pod_salt >> 8),
            _ => ResetSchedule::ENDLESS,
        };
        let counter = |rate, per_unit| Shape::Counter {
            counter: CounterShape::new(rate, salt),
            resets,
            per_unit,
        };
        // Everything that is measured of one kind of request has the same flows.
        let mixture = |method: usize, shares: fn(f64, f64, usize) -> f64, bound, per_unit| {
            let salt = mix(pod_salt, 100 + method as u64);
            let rate = log_uniform(15.0, 1_500.0, salt);
            let means =
                [log_uniform(0.008, 0.08, mix(salt, 1)), log_uniform(0.2, 2.0, mix(salt, 2))];
            let slow_rate = rate * log_uniform(0.03, 0.2, mix(salt, 3));
            Shape::Mixture {
                counters: [
                    CounterShape::new(rate, mix(salt, 4)),
                    CounterShape::new(slow_rate, mix(salt, 5)),
                ],
                shares: [shares(means[0], 2.5, bound), shares(means[1], 2.0, bound)],
                resets,
                per_unit,
            }
        };
        match slot {
            // Seconds of processor time in a step: from 2% of a core to two cores.
            Slot::Cpu(_) => counter(log_uniform(0.3, 30.0, salt), 1_000.0),
            Slot::Memory(_) => gauge(log_uniform(50e6, 2e9, salt), salt, 1.0 / 4_096.0, 2),
            Slot::Requests { code, .. } => {
                let share = [1.0, 0.05, 0.02][code];
                counter(log_uniform(30.0, 1_500.0, salt) * share, 1.0)
            }
            Slot::Bucket { method, bound } => mixture(method, share_below, bound, 1.0),
            Slot::Count { method } => mixture(method, |_, _, _| 1.0, 0, 1.0),
            Slot::Sum { method } => mixture(method, |mean, _, _| 1.3 * mean, 0, 1_000.0),
            Slot::Phase(phase) => Shape::Phase { salt: mix(pod_salt, 7), phase: phase as u32 },
        }
    }
}

/// Which share of values with this mean (a log-logistic distribution) is not above a bound.
fn share_below(mean: f64, steepness: f64, bound: usize) -> f64 {
    1.0 / (1.0 + (BUCKET_BOUNDS[bound].1 / mean).powf(-steepness))
}

/// A gauge about a level, with a swing of an hour and one of a day.
fn gauge(level: f64, salt: u64, per_unit: f64, hold_bits: u32) -> Shape {
    Shape::Gauge {
        level,
        waves: [
            PeriodicShape::new(level * 0.08, 240.0, mix(salt, 1)),
            PeriodicShape::new(level * 0.2, 5_760.0, mix(salt, 2)),
        ],
        noise: level * 0.05,
        hold_bits,
        salt: mix(salt, 3),
        per_unit,
    }
}

/// A number between two, every order of magnitude as likely as another.
fn log_uniform(low: f64, high: f64, random: u64) -> f64 {
    low * (high / low).powf(unit_fraction(mix(random, 11)))
}

fn instance_address(node: u32, port: u32) -> String {
    format!("10.{}.{}.{}:{port}", node >> 16, (node >> 8) & 255, node & 255)
}

#[cfg(test)]
mod tests;
