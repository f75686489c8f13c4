//! The kinds of query that are asked: what dashboards, alerts and people ask of such a fleet.

use super::expression::{Aggregate, Expr, ExprOperator, Matching, Selector, WindowFunction};
use super::fleet::{
    CPU_SECONDS, DURATION_BUCKET, DURATION_COUNT, DURATION_SUM, Fleet, LOAD1, MEMORY_BYTES,
    POD_PHASE, REQUESTS_TOTAL,
};
use super::shape::mix;

/// One kind of query.
pub(super) struct QueryKind {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// Whether VictoriaMetrics means the same by it. Its `rate`, `increase` and `delta` do not
    /// extrapolate, its windows take in the sample before them for these and for `changes`, `deriv`
    /// and `idelta`, and its subqueries are at other moments.
    pub(super) same_in_victoria_metrics: bool,
    build_expr: fn(&LabelValues) -> Expr,
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
        let pick = |salt: u64, count: u32| (mix(random, salt) % u64::from(count.max(1))) as u32;
        // The last node may lack some of its series.
        let nodes = (fleet.node_count() - 1).max(1);
        let node = pick(1, nodes);
        let service = pick(2, fleet.service_count());
        Self {
            service: fleet.service_name(service),
            other_service: fleet.service_name((service + 1) % fleet.service_count()),
            namespace: fleet.namespace_name(pick(3, fleet.namespace_count())),
            pod: fleet.pod_name(4 * node + pick(4, 4)),
            node: fleet.node_name(node),
            zone: fleet.zone_name(node),
        }
    }

    fn select_by_service(&self, metric: &'static str) -> Selector {
        Selector::new(metric).with_label("service", &self.service)
    }

    fn select_by_namespace(&self, metric: &'static str) -> Selector {
        Selector::new(metric).with_label("namespace", &self.namespace)
    }

    fn select_by_pod(&self, metric: &'static str) -> Selector {
        Selector::new(metric).with_label("pod", &self.pod)
    }

    fn node_load(&self) -> Selector {
        Selector::new(LOAD1).with_label("zone", self.zone)
    }

    fn rate_by(&self, metric: &'static str, labels: &[&'static str]) -> Expr {
        self.select_by_service(metric).over_minutes(WindowFunction::Rate, 5).sum_by(labels)
    }

    fn latency_quantile(&self, quantile: f64) -> Expr {
        self.rate_by(DURATION_BUCKET, &["service", "le"]).histogram_quantile(quantile)
    }

    fn error_ratio(&self) -> Expr {
        let errors = self.select_by_service(REQUESTS_TOTAL).with_label("code", "500");
        let errors = errors.over_minutes(WindowFunction::Rate, 5).sum_by(&["service"]);
        let all = self.rate_by(REQUESTS_TOTAL, &["service"]);
        errors.binary(ExprOperator::Divide, Matching::On(vec!["service"]), all)
    }

    fn mean_latency(&self) -> Expr {
        let count = self.rate_by(DURATION_COUNT, &["service", "method"]);
        let sum = self.rate_by(DURATION_SUM, &["service", "method"]);
        sum.binary(ExprOperator::Divide, Matching::SameLabels, count)
    }

    fn busiest_pods(&self) -> Expr {
        let cpu = self.select_by_namespace(CPU_SECONDS).over_minutes(WindowFunction::Rate, 5);
        cpu.sum_by(&["pod"]).aggregate_with_parameter(Aggregate::Topk, 5.0, &[])
    }
}

const fn same_kind(
    name: &'static str,
    form: Form,
    build_expr: fn(&LabelValues) -> Expr,
) -> QueryKind {
    QueryKind { name, form, same_in_victoria_metrics: true, build_expr }
}

const fn differing_kind(
    name: &'static str,
    form: Form,
    build_expr: fn(&LabelValues) -> Expr,
) -> QueryKind {
    QueryKind { name, form, same_in_victoria_metrics: false, build_expr }
}

impl QueryKind {
    /// The query about a place.
    pub(super) fn expr_for(&self, values: &LabelValues) -> Expr {
        (self.build_expr)(values)
    }
}

/// All kinds, in the order in which they take turns.
pub(super) const KINDS: &[QueryKind] = &[
    // One series or few, as on a dashboard.
    same_kind("instant_pod", Form::Instant, |values| values.select_by_pod(CPU_SECONDS).latest()),
    same_kind("instant_memory_by_container", Form::Instant, |values| {
        values.select_by_service(MEMORY_BYTES).latest().sum_by(&["container"])
    }),
    same_kind("instant_three_labels", Form::Instant, |values| {
        values.select_by_service(MEMORY_BYTES).latest().sum_by(&["cluster", "zone", "namespace"])
    }),
    same_kind("instant_without", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .latest()
            .aggregate_without(Aggregate::Avg, &["pod", "instance", "node"])
    }),
    same_kind("instant_count_of_counts", Form::Instant, |values| {
        let pods = values
            .select_by_namespace(CPU_SECONDS)
            .latest()
            .aggregate_by(Aggregate::Count, &["pod"]);
        pods.aggregate_by(Aggregate::Count, &[])
    }),
    same_kind("instant_phase", Form::Instant, |values| {
        let phases =
            values.select_by_namespace(POD_PHASE).latest().compare_with(ExprOperator::Equal, 1.0);
        phases.aggregate_by(Aggregate::Count, &["phase"])
    }),
    same_kind("timestamp", Form::Instant, |values| {
        Expr::Timestamp(values.node_load()).aggregate_by(Aggregate::Max, &["job"])
    }),
    same_kind("absent", Form::Instant, |_| {
        Expr::Absent(Selector::new(LOAD1).with_label("node", "node-that-is-not"))
    }),
    same_kind("quantile_of_nodes", Form::Instant, |_| {
        Selector::new(LOAD1).latest().aggregate_with_parameter(Aggregate::Quantile, 0.9, &["zone"])
    }),
    same_kind("stddev_of_nodes", Form::Instant, |_| {
        Selector::new("node_load5").latest().aggregate_by(Aggregate::Stddev, &["zone"])
    }),
    same_kind("least_of_nodes", Form::Instant, |_| {
        let memory = Selector::new("node_memory_MemAvailable_bytes").latest();
        memory.aggregate_by(Aggregate::Min, &["cluster"])
    }),
    // Rates.
    differing_kind("rate_by_pod", Form::Instant, |values| values.rate_by(CPU_SECONDS, &["pod"])),
    differing_kind("rate_by_container", Form::Instant, |values| {
        values
            .select_by_service(CPU_SECONDS)
            .over_minutes(WindowFunction::Rate, 15)
            .sum_by(&["container"])
    }),
    differing_kind("rate_by_code_regex", Form::Instant, |values| {
        let both = vec![values.service.clone(), values.other_service.clone()];
        let requests = Selector::new(REQUESTS_TOTAL).with_label_in("service", both);
        requests.over_minutes(WindowFunction::Rate, 5).sum_by(&["code"])
    }),
    differing_kind("rate_not_ok", Form::Instant, |values| {
        let failed = values.select_by_service(REQUESTS_TOTAL).with_label_not("code", "200");
        failed.over_minutes(WindowFunction::Rate, 5).sum_by(&["code", "method"])
    }),
    differing_kind("rate_three_labels", Form::Instant, |values| {
        let requests =
            values.select_by_namespace(REQUESTS_TOTAL).over_minutes(WindowFunction::Rate, 5);
        requests.sum_by(&["service", "method", "code"])
    }),
    differing_kind("rate_before", Form::Instant, |values| {
        let before = values.select_by_service(REQUESTS_TOTAL).over_minutes_offset(
            WindowFunction::Rate,
            5,
            60,
        );
        before.sum_by(&["service"])
    }),
    differing_kind("increase_hour", Form::Instant, |values| {
        values
            .select_by_service(REQUESTS_TOTAL)
            .over_minutes(WindowFunction::Increase, 60)
            .sum_by(&["code"])
    }),
    differing_kind("increase_day", Form::Instant, |values| {
        values
            .select_by_pod(REQUESTS_TOTAL)
            .over_minutes(WindowFunction::Increase, 1_440)
            .sum_by(&["code"])
    }),
    differing_kind("irate", Form::Instant, |values| {
        values
            .select_by_service(CPU_SECONDS)
            .over_minutes(WindowFunction::Irate, 5)
            .sum_by(&["pod"])
    }),
    differing_kind("idelta", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Idelta, 5)
            .aggregate_by(Aggregate::Max, &["container"])
    }),
    differing_kind("delta", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Delta, 60)
            .aggregate_by(Aggregate::Max, &["container"])
    }),
    differing_kind("deriv", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Deriv, 15)
            .aggregate_by(Aggregate::Max, &["container"])
    }),
    differing_kind("resets", Form::Instant, |values| {
        values
            .select_by_service(CPU_SECONDS)
            .over_minutes(WindowFunction::Resets, 180)
            .aggregate_by(Aggregate::Sum, &["container"])
    }),
    differing_kind("changes", Form::Instant, |values| {
        values
            .select_by_service(POD_PHASE)
            .over_minutes(WindowFunction::Changes, 60)
            .aggregate_by(Aggregate::Sum, &["phase"])
    }),
    // Over time.
    same_kind("avg_over_time", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Avg, 30)
            .aggregate_by(Aggregate::Avg, &["pod"])
    }),
    same_kind("min_over_time", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Min, 30)
            .aggregate_by(Aggregate::Min, &["pod"])
    }),
    same_kind("max_over_time", Form::Instant, |values| {
        values
            .node_load()
            .over_minutes(WindowFunction::Max, 60)
            .aggregate_by(Aggregate::Max, &["node"])
    }),
    same_kind("sum_over_time", Form::Instant, |values| {
        values
            .select_by_service(POD_PHASE)
            .over_minutes(WindowFunction::Sum, 60)
            .aggregate_by(Aggregate::Sum, &["phase"])
    }),
    same_kind("count_over_time", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Count, 60)
            .aggregate_by(Aggregate::Sum, &["container"])
    }),
    same_kind("last_over_time", Form::Instant, |values| {
        values
            .select_by_service(MEMORY_BYTES)
            .over_minutes(WindowFunction::Last, 15)
            .aggregate_by(Aggregate::Sum, &["container"])
    }),
    same_kind("stddev_over_time", Form::Instant, |values| {
        values
            .node_load()
            .over_minutes(WindowFunction::Stddev, 60)
            .aggregate_by(Aggregate::Max, &["cluster"])
    }),
    same_kind("quantile_over_time", Form::Instant, |values| {
        let load = values.node_load().over_minutes_with(WindowFunction::Quantile, Some(0.9), 60);
        load.aggregate_by(Aggregate::Max, &["cluster"])
    }),
    same_kind("max_over_day", Form::Instant, |values| {
        values
            .select_by_pod(MEMORY_BYTES)
            .over_minutes(WindowFunction::Max, 1_440)
            .aggregate_by(Aggregate::Max, &["container"])
    }),
    // Quantiles of durations.
    differing_kind("median", Form::Instant, |values| values.latency_quantile(0.5)),
    differing_kind("quantile_90", Form::Instant, |values| values.latency_quantile(0.9)),
    differing_kind("quantile_95", Form::Instant, |values| values.latency_quantile(0.95)),
    differing_kind("quantile_99", Form::Instant, |values| values.latency_quantile(0.99)),
    differing_kind("quantile_999", Form::Instant, |values| values.latency_quantile(0.999)),
    differing_kind("mean_latency", Form::Instant, LabelValues::mean_latency),
    // Two vectors.
    differing_kind("error_ratio", Form::Instant, LabelValues::error_ratio),
    differing_kind("share_of_service", Form::Instant, |values| {
        let all = values.rate_by(REQUESTS_TOTAL, &["service"]);
        let each = values.rate_by(REQUESTS_TOTAL, &["service", "pod"]);
        each.binary(ExprOperator::Divide, Matching::OnGroupLeft(vec!["service"]), all)
    }),
    differing_kind("memory_per_core", Form::Instant, |values| {
        let cpu = values.rate_by(CPU_SECONDS, &["pod"]);
        let memory = values.select_by_service(MEMORY_BYTES).latest().sum_by(&["pod"]);
        memory.binary(ExprOperator::Divide, Matching::On(vec!["pod"]), cpu)
    }),
    same_kind("above_average_ignoring", Form::Instant, |values| {
        let load5 = Selector::new("node_load5")
            .with_label("zone", values.zone)
            .latest()
            .sum_by(&["node", "job"]);
        let load1 = values.node_load().latest().sum_by(&["node"]);
        load1.binary(ExprOperator::Subtract, Matching::Ignoring(vec!["job"]), load5)
    }),
    same_kind("unless_one_node", Form::Instant, |values| {
        let excluded_node = Selector::new(LOAD1).with_label("node", &values.node).latest();
        let all = Selector::new(LOAD1).latest();
        all.binary(ExprOperator::Unless, Matching::On(vec!["node"]), excluded_node)
    }),
    same_kind("sum_of_two", Form::Instant, |values| {
        let load5 = Selector::new("node_load5").with_label("zone", values.zone).latest();
        values.node_load().latest().binary(ExprOperator::Add, Matching::SameLabels, load5)
    }),
    // Filters and ranks.
    differing_kind("cpu_above", Form::Instant, |values| {
        let cpu = values
            .select_by_namespace(CPU_SECONDS)
            .over_minutes(WindowFunction::Rate, 5)
            .sum_by(&["pod"]);
        cpu.compare_with(ExprOperator::Greater, 0.05)
    }),
    same_kind("load_below", Form::Instant, |_| {
        Selector::new(LOAD1).latest().compare_with(ExprOperator::Less, 6.0)
    }),
    differing_kind("topk", Form::Instant, LabelValues::busiest_pods),
    differing_kind("bottomk", Form::Instant, |values| {
        let cpu = values.select_by_namespace(CPU_SECONDS).over_minutes(WindowFunction::Rate, 5);
        cpu.sum_by(&["pod"]).aggregate_with_parameter(Aggregate::Bottomk, 3.0, &[])
    }),
    differing_kind("percent", Form::Instant, |values| {
        values.error_ratio().compare_with(ExprOperator::Multiply, 100.0)
    }),
    // Subqueries.
    differing_kind("peak_of_rate", Form::Instant, |values| {
        values.rate_by(REQUESTS_TOTAL, &["service"]).over_minute_steps(WindowFunction::Max, 30)
    }),
    differing_kind("mean_of_rate", Form::Instant, |values| {
        values.rate_by(CPU_SECONDS, &["service"]).over_minute_steps(WindowFunction::Avg, 15)
    }),
    // Panels.
    differing_kind("panel_rate_by_pod", Form::Hour, |values| values.rate_by(CPU_SECONDS, &["pod"])),
    differing_kind("panel_rate_by_code", Form::Hour, |values| {
        values.rate_by(REQUESTS_TOTAL, &["service", "code"])
    }),
    differing_kind("panel_quantile_95", Form::Hour, |values| values.latency_quantile(0.95)),
    differing_kind("panel_quantile_99", Form::Hour, |values| values.latency_quantile(0.99)),
    differing_kind("panel_error_ratio", Form::Hour, LabelValues::error_ratio),
    differing_kind("panel_mean_latency", Form::Hour, LabelValues::mean_latency),
    same_kind("panel_memory_by_pod", Form::Hour, |values| {
        values.select_by_service(MEMORY_BYTES).latest().sum_by(&["pod"])
    }),
    same_kind("panel_load", Form::Hour, |values| {
        values.node_load().latest().aggregate_by(Aggregate::Max, &["cluster"])
    }),
    same_kind("panel_avg_over_time", Form::Hour, |values| {
        values
            .select_by_pod(MEMORY_BYTES)
            .over_minutes(WindowFunction::Avg, 5)
            .aggregate_by(Aggregate::Avg, &["container"])
    }),
    differing_kind("panel_topk", Form::Hour, LabelValues::busiest_pods),
    same_kind("panel_phase", Form::Hour, |values| {
        let phases =
            values.select_by_service(POD_PHASE).latest().compare_with(ExprOperator::Equal, 1.0);
        phases.aggregate_by(Aggregate::Count, &["phase"])
    }),
    same_kind("day_of_memory", Form::Day, |values| {
        values.select_by_pod(MEMORY_BYTES).latest().sum_by(&["container"])
    }),
    differing_kind("day_of_requests", Form::Day, |values| {
        values
            .select_by_pod(REQUESTS_TOTAL)
            .over_minutes(WindowFunction::Rate, 15)
            .sum_by(&["code"])
    }),
];

#[cfg(test)]
mod tests;
