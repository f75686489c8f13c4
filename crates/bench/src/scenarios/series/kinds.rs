//! The kinds of query that are asked: what dashboards, alerts and people ask of such a fleet.

use super::expression::{Aggregate, Expr, ExprOperator, Matching, Selector, WindowFunction};
use super::fleet::{BUCKET, COUNT, CPU, Fleet, LOAD1, MEMORY, PHASE, REQUESTS, SUM};
use super::shape::mix;

/// One kind of query.
pub(super) struct QueryKind {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// Whether VictoriaMetrics means the same by it. Its `rate`, `increase` and `delta` do not
    /// extrapolate, its windows take in the sample before them for these and for `changes`, `deriv`
    /// and `idelta`, and its subqueries are at other moments.
    pub(super) same_in_victoria_metrics: bool,
    make: fn(&LabelValues) -> Expr,
}

/// For which moments it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Instant,
    /// An hour, each minute: a panel.
    Hour,
    /// A day, each quarter of an hour.
    Day,
}

/// Label values that a query selects by.
pub(super) struct LabelValues {
    service: String,
    other_service: String,
    namespace: String,
    pod: String,
    node: String,
    zone: &'static str,
}

impl LabelValues {
    /// One of very many, by a random number.
    pub(super) fn new(fleet: &Fleet, random: u64) -> Self {
        let pick = |what: u64, of: u32| (mix(random, what) % u64::from(of.max(1))) as u32;
        // The last node may lack some of its series.
        let nodes = (fleet.nodes() - 1).max(1);
        let node = pick(1, nodes);
        let service = pick(2, fleet.services());
        Self {
            service: fleet.service(service),
            other_service: fleet.service((service + 1) % fleet.services()),
            namespace: fleet.namespace(pick(3, fleet.namespaces())),
            pod: fleet.pod(4 * node + pick(4, 4)),
            node: fleet.node(node),
            zone: fleet.zone(node),
        }
    }

    fn of_service(&self, metric: &'static str) -> Selector {
        Selector::of(metric).is("service", &self.service)
    }

    fn of_namespace(&self, metric: &'static str) -> Selector {
        Selector::of(metric).is("namespace", &self.namespace)
    }

    fn of_pod(&self, metric: &'static str) -> Selector {
        Selector::of(metric).is("pod", &self.pod)
    }

    fn load(&self) -> Selector {
        Selector::of(LOAD1).is("zone", self.zone)
    }

    fn rate_by(&self, metric: &'static str, labels: &[&'static str]) -> Expr {
        self.of_service(metric)
            .over(WindowFunction::Rate, 5)
            .sum_by(labels)
    }

    fn quantile(&self, quantile: f64) -> Expr {
        self.rate_by(BUCKET, &["service", "le"])
            .quantile_of_buckets(quantile)
    }

    fn error_ratio(&self) -> Expr {
        let errors = self.of_service(REQUESTS).is("code", "500");
        let errors = errors.over(WindowFunction::Rate, 5).sum_by(&["service"]);
        let all = self.rate_by(REQUESTS, &["service"]);
        errors.and_then(ExprOperator::Divide, Matching::On(vec!["service"]), all)
    }

    fn mean_latency(&self) -> Expr {
        let count = self.rate_by(COUNT, &["service", "method"]);
        let sum = self.rate_by(SUM, &["service", "method"]);
        sum.and_then(ExprOperator::Divide, Matching::Same, count)
    }

    fn busiest_pods(&self) -> Expr {
        let cpu = self.of_namespace(CPU).over(WindowFunction::Rate, 5);
        cpu.sum_by(&["pod"]).with(Aggregate::Topk, 5.0, &[])
    }
}

const fn same(name: &'static str, form: Form, make: fn(&LabelValues) -> Expr) -> QueryKind {
    QueryKind {
        name,
        form,
        same_in_victoria_metrics: true,
        make,
    }
}

const fn differs(name: &'static str, form: Form, make: fn(&LabelValues) -> Expr) -> QueryKind {
    QueryKind {
        name,
        form,
        same_in_victoria_metrics: false,
        make,
    }
}

impl QueryKind {
    /// The query about a place.
    pub(super) fn about(&self, place: &LabelValues) -> Expr {
        (self.make)(place)
    }
}

/// All kinds, in the order in which they take turns.
pub(super) const KINDS: &[QueryKind] = &[
    // One series or few, as on a dashboard.
    same("instant_pod", Form::Instant, |place| {
        place.of_pod(CPU).last()
    }),
    same("instant_memory_by_container", Form::Instant, |place| {
        place.of_service(MEMORY).last().sum_by(&["container"])
    }),
    same("instant_three_labels", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .last()
            .sum_by(&["cluster", "zone", "namespace"])
    }),
    same("instant_without", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .last()
            .without(Aggregate::Avg, &["pod", "instance", "node"])
    }),
    same("instant_count_of_counts", Form::Instant, |place| {
        let pods = place
            .of_namespace(CPU)
            .last()
            .by(Aggregate::Count, &["pod"]);
        pods.by(Aggregate::Count, &[])
    }),
    same("instant_phase", Form::Instant, |place| {
        let phases = place
            .of_namespace(PHASE)
            .last()
            .than(ExprOperator::Equal, 1.0);
        phases.by(Aggregate::Count, &["phase"])
    }),
    same("timestamp", Form::Instant, |place| {
        Expr::Timestamp(place.load()).by(Aggregate::Max, &["job"])
    }),
    same("absent", Form::Instant, |_| {
        Expr::Absent(Selector::of(LOAD1).is("node", "node-that-is-not"))
    }),
    same("quantile_of_nodes", Form::Instant, |_| {
        Selector::of(LOAD1)
            .last()
            .with(Aggregate::Quantile, 0.9, &["zone"])
    }),
    same("stddev_of_nodes", Form::Instant, |_| {
        Selector::of("node_load5")
            .last()
            .by(Aggregate::Stddev, &["zone"])
    }),
    same("least_of_nodes", Form::Instant, |_| {
        let memory = Selector::of("node_memory_MemAvailable_bytes").last();
        memory.by(Aggregate::Min, &["cluster"])
    }),
    // Rates.
    differs("rate_by_pod", Form::Instant, |place| {
        place.rate_by(CPU, &["pod"])
    }),
    differs("rate_by_container", Form::Instant, |place| {
        place
            .of_service(CPU)
            .over(WindowFunction::Rate, 15)
            .sum_by(&["container"])
    }),
    differs("rate_by_code_regex", Form::Instant, |place| {
        let both = vec![place.service.clone(), place.other_service.clone()];
        let requests = Selector::of(REQUESTS).one_of("service", both);
        requests.over(WindowFunction::Rate, 5).sum_by(&["code"])
    }),
    differs("rate_not_ok", Form::Instant, |place| {
        let failed = place.of_service(REQUESTS).but_not("code", "200");
        failed
            .over(WindowFunction::Rate, 5)
            .sum_by(&["code", "method"])
    }),
    differs("rate_three_labels", Form::Instant, |place| {
        let requests = place.of_namespace(REQUESTS).over(WindowFunction::Rate, 5);
        requests.sum_by(&["service", "method", "code"])
    }),
    differs("rate_before", Form::Instant, |place| {
        let before = place
            .of_service(REQUESTS)
            .over_before(WindowFunction::Rate, 5, 60);
        before.sum_by(&["service"])
    }),
    differs("increase_hour", Form::Instant, |place| {
        place
            .of_service(REQUESTS)
            .over(WindowFunction::Increase, 60)
            .sum_by(&["code"])
    }),
    differs("increase_day", Form::Instant, |place| {
        place
            .of_pod(REQUESTS)
            .over(WindowFunction::Increase, 1_440)
            .sum_by(&["code"])
    }),
    differs("irate", Form::Instant, |place| {
        place
            .of_service(CPU)
            .over(WindowFunction::Irate, 5)
            .sum_by(&["pod"])
    }),
    differs("idelta", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Idelta, 5)
            .by(Aggregate::Max, &["container"])
    }),
    differs("delta", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Delta, 60)
            .by(Aggregate::Max, &["container"])
    }),
    differs("deriv", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Deriv, 15)
            .by(Aggregate::Max, &["container"])
    }),
    differs("resets", Form::Instant, |place| {
        place
            .of_service(CPU)
            .over(WindowFunction::Resets, 180)
            .by(Aggregate::Sum, &["container"])
    }),
    differs("changes", Form::Instant, |place| {
        place
            .of_service(PHASE)
            .over(WindowFunction::Changes, 60)
            .by(Aggregate::Sum, &["phase"])
    }),
    // Over time.
    same("avg_over_time", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Avg, 30)
            .by(Aggregate::Avg, &["pod"])
    }),
    same("min_over_time", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Min, 30)
            .by(Aggregate::Min, &["pod"])
    }),
    same("max_over_time", Form::Instant, |place| {
        place
            .load()
            .over(WindowFunction::Max, 60)
            .by(Aggregate::Max, &["node"])
    }),
    same("sum_over_time", Form::Instant, |place| {
        place
            .of_service(PHASE)
            .over(WindowFunction::Sum, 60)
            .by(Aggregate::Sum, &["phase"])
    }),
    same("count_over_time", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Count, 60)
            .by(Aggregate::Sum, &["container"])
    }),
    same("last_over_time", Form::Instant, |place| {
        place
            .of_service(MEMORY)
            .over(WindowFunction::Last, 15)
            .by(Aggregate::Sum, &["container"])
    }),
    same("stddev_over_time", Form::Instant, |place| {
        place
            .load()
            .over(WindowFunction::Stddev, 60)
            .by(Aggregate::Max, &["cluster"])
    }),
    same("quantile_over_time", Form::Instant, |place| {
        let load = place
            .load()
            .over_with(WindowFunction::Quantile, Some(0.9), 60);
        load.by(Aggregate::Max, &["cluster"])
    }),
    same("max_over_day", Form::Instant, |place| {
        place
            .of_pod(MEMORY)
            .over(WindowFunction::Max, 1_440)
            .by(Aggregate::Max, &["container"])
    }),
    // Quantiles of durations.
    differs("median", Form::Instant, |place| place.quantile(0.5)),
    differs("quantile_90", Form::Instant, |place| place.quantile(0.9)),
    differs("quantile_95", Form::Instant, |place| place.quantile(0.95)),
    differs("quantile_99", Form::Instant, |place| place.quantile(0.99)),
    differs("quantile_999", Form::Instant, |place| place.quantile(0.999)),
    differs("mean_latency", Form::Instant, LabelValues::mean_latency),
    // Two vectors.
    differs("error_ratio", Form::Instant, LabelValues::error_ratio),
    differs("share_of_service", Form::Instant, |place| {
        let all = place.rate_by(REQUESTS, &["service"]);
        let each = place.rate_by(REQUESTS, &["service", "pod"]);
        each.and_then(
            ExprOperator::Divide,
            Matching::OnGroupLeft(vec!["service"]),
            all,
        )
    }),
    differs("memory_per_core", Form::Instant, |place| {
        let cpu = place.rate_by(CPU, &["pod"]);
        let memory = place.of_service(MEMORY).last().sum_by(&["pod"]);
        memory.and_then(ExprOperator::Divide, Matching::On(vec!["pod"]), cpu)
    }),
    same("above_average_ignoring", Form::Instant, |place| {
        let load5 = Selector::of("node_load5")
            .is("zone", place.zone)
            .last()
            .sum_by(&["node", "job"]);
        let load1 = place.load().last().sum_by(&["node"]);
        load1.and_then(
            ExprOperator::Subtract,
            Matching::Ignoring(vec!["job"]),
            load5,
        )
    }),
    same("unless_one_node", Form::Instant, |place| {
        let one = Selector::of(LOAD1).is("node", &place.node).last();
        let all = Selector::of(LOAD1).last();
        all.and_then(ExprOperator::Unless, Matching::On(vec!["node"]), one)
    }),
    same("sum_of_two", Form::Instant, |place| {
        let load5 = Selector::of("node_load5").is("zone", place.zone).last();
        place
            .load()
            .last()
            .and_then(ExprOperator::Add, Matching::Same, load5)
    }),
    // Filters and ranks.
    differs("cpu_above", Form::Instant, |place| {
        let cpu = place
            .of_namespace(CPU)
            .over(WindowFunction::Rate, 5)
            .sum_by(&["pod"]);
        cpu.than(ExprOperator::Greater, 0.05)
    }),
    same("load_below", Form::Instant, |_| {
        Selector::of(LOAD1).last().than(ExprOperator::Less, 6.0)
    }),
    differs("topk", Form::Instant, LabelValues::busiest_pods),
    differs("bottomk", Form::Instant, |place| {
        let cpu = place.of_namespace(CPU).over(WindowFunction::Rate, 5);
        cpu.sum_by(&["pod"]).with(Aggregate::Bottomk, 3.0, &[])
    }),
    differs("percent", Form::Instant, |place| {
        place.error_ratio().than(ExprOperator::Multiply, 100.0)
    }),
    // Subqueries.
    differs("peak_of_rate", Form::Instant, |place| {
        place
            .rate_by(REQUESTS, &["service"])
            .each_minute(WindowFunction::Max, 30)
    }),
    differs("mean_of_rate", Form::Instant, |place| {
        place
            .rate_by(CPU, &["service"])
            .each_minute(WindowFunction::Avg, 15)
    }),
    // Panels.
    differs("panel_rate_by_pod", Form::Hour, |place| {
        place.rate_by(CPU, &["pod"])
    }),
    differs("panel_rate_by_code", Form::Hour, |place| {
        place.rate_by(REQUESTS, &["service", "code"])
    }),
    differs("panel_quantile_95", Form::Hour, |place| {
        place.quantile(0.95)
    }),
    differs("panel_quantile_99", Form::Hour, |place| {
        place.quantile(0.99)
    }),
    differs("panel_error_ratio", Form::Hour, LabelValues::error_ratio),
    differs("panel_mean_latency", Form::Hour, LabelValues::mean_latency),
    same("panel_memory_by_pod", Form::Hour, |place| {
        place.of_service(MEMORY).last().sum_by(&["pod"])
    }),
    same("panel_load", Form::Hour, |place| {
        place.load().last().by(Aggregate::Max, &["cluster"])
    }),
    same("panel_avg_over_time", Form::Hour, |place| {
        place
            .of_pod(MEMORY)
            .over(WindowFunction::Avg, 5)
            .by(Aggregate::Avg, &["container"])
    }),
    differs("panel_topk", Form::Hour, LabelValues::busiest_pods),
    same("panel_phase", Form::Hour, |place| {
        let phases = place
            .of_service(PHASE)
            .last()
            .than(ExprOperator::Equal, 1.0);
        phases.by(Aggregate::Count, &["phase"])
    }),
    same("day_of_memory", Form::Day, |place| {
        place.of_pod(MEMORY).last().sum_by(&["container"])
    }),
    differs("day_of_requests", Form::Day, |place| {
        place
            .of_pod(REQUESTS)
            .over(WindowFunction::Rate, 15)
            .sum_by(&["code"])
    }),
];

#[cfg(test)]
mod tests;
