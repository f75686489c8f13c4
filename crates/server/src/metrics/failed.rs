//! Parts that have failed and conditions that last, looked up anew at each scrape.

use std::fmt;

use egret_base::condition;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::server::FailedParts;

/// A gauge with a label for each part that has failed, and one for each condition.
pub(super) struct Failed {
    pub(super) parts: FailedParts,
}

impl fmt::Debug for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Failed")
    }
}

impl Collector for Failed {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Parts that do not work while the others do, by name";
        let mut gauge =
            encoder.encode_descriptor("egret_part_failed", help, None, MetricType::Gauge)?;
        for failed in (self.parts)() {
            let labels = [("part", failed.part)];
            let sample = gauge.encode_family(&labels)?;
            ConstGauge::new(1_i64).encode(sample)?;
        }
        let help = "What has a fault that lasts and is tried again, by the name of the fault";
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
