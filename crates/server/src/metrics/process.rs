//! Metrics of this process from the operating system, read at each scrape.

use std::fmt;
use std::fs;

use egret_base::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::process::Resource;
use rustix::time::ClockId;

/// The process's customary metrics; the names are those of Prometheus's own client libraries.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) started_at: Timestamp,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        encode_metric(
            &mut encoder,
            "process_cpu_seconds",
            "Processor time used",
            &ConstCounter::new(cpu_seconds),
        )?;
        let started = self.started_at.as_micros() as f64 / 1e6;
        encode_metric(
            &mut encoder,
            "process_start_time_seconds",
            "When the process started, since the Unix epoch",
            &ConstGauge::new(started),
        )?;
        // What /proc does not tell is left out rather than reported as zero.
        if let Some(bytes) = resident_bytes() {
            encode_metric(
                &mut encoder,
                "process_resident_memory_bytes",
                "Memory in use",
                &ConstGauge::new(bytes),
            )?;
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            let count = i64::try_from(entries.count()).unwrap_or(i64::MAX);
            encode_metric(
                &mut encoder,
                "process_open_fds",
                "Open file descriptors",
                &ConstGauge::new(count),
            )?;
        }
        if let Some(open_files_max) = rustix::process::getrlimit(Resource::Nofile).current {
            let most = i64::try_from(open_files_max).unwrap_or(i64::MAX);
            encode_metric(
                &mut encoder,
                "process_max_fds",
                "Most file descriptors allowed",
                &ConstGauge::new(most),
            )?;
        }
        Ok(())
    }
}

pub(super) fn encode_metric(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> Result<(), fmt::Error> {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn resident_bytes() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
