//! Failed parts and active conditions, collected at each scrape.

use std::fmt;
use std::sync::Arc;

use egret_base::condition;
use egret_base::lifecycle::FailedPart;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Returns the parts that failed to start; usually [`egret_base::lifecycle::Stack::failed_parts`]
/// of a copy of the stack taken before the server was pushed onto it.
pub type FailedParts = Arc<dyn Fn() -> Vec<FailedPart> + Send + Sync>;

/// A gauge with a label for each part that has failed, and one for each condition.
pub(super) struct FailedPartsCollector {
    pub(super) parts: FailedParts,
}

impl fmt::Debug for FailedPartsCollector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Failed")
    }
}

impl Collector for FailedPartsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Parts of Egret that have failed, by name";
        let mut gauge =
            encoder.encode_descriptor("egret_part_failed", help, None, MetricType::Gauge)?;
        for failed in (self.parts)() {
            let labels = [("part", failed.part)];
            let sample = gauge.encode_family(&labels)?;
            ConstGauge::new(1_i64).encode(sample)?;
        }
        let help = "Subjects with an active condition, by condition";
        let mut gauge =
            encoder.encode_descriptor("egret_condition_active", help, None, MetricType::Gauge)?;
        for (name, count) in condition::counts() {
            let labels = [("condition", name)];
            let sample = gauge.encode_family(&labels)?;
            ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX)).encode(sample)?;
        }
        Ok(())
    }
}
