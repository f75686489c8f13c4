//! Resources in use by requests in progress, read at each scrape.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::ConstGauge;

use super::process::encode_metric;
use crate::quota::Quotas;

/// The use of the quotas by all requests together.
#[derive(Debug)]
pub(super) struct QuotaUse(pub(super) Arc<Quotas>);

impl Collector for QuotaUse {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let [requests, streams, bytes] = self.0.in_use();
        for (name, help, value) in [
            (
                "egret_http_requests_admitted",
                "Requests with a token in progress, limited by server.concurrency_max",
                requests,
            ),
            ("egret_http_streams_admitted", "Open streams, limited by server.streams_max", streams),
            (
                "egret_http_body_memory_bytes",
                "Memory of request bodies in progress, limited by server.body_memory_max",
                bytes,
            ),
        ] {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            encode_metric(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        Ok(())
    }
}
