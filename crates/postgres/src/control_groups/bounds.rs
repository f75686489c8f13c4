//! Bounds on groups: files of the controllers (cgroup-v2.rst of the kernel) and the values that are
//! written to them.

use super::GroupLimits;

/// A file of a controller and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) controller: &'static str,
    pub(super) file: &'static str,
    pub(super) value: String,
    /// Whether every kernel with the controller has the file.
    pub(super) presence: Presence,
}

/// In which kernels a file of a controller exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Always,
    /// Only in kernels that were built, or started, with support for it.
    Optional,
}

/// Bounds on the group of all servers.
pub(super) fn bounds_for_all(limits: &GroupLimits) -> Vec<Bound> {
    let mut bounds = memory_bounds(limits.total_memory_max.bytes());
    bounds.push(bound("cpu", "cpu.weight", limits.total_cpu_weight));
    bounds.push(bound("pids", "pids.max", limits.total_processes_max));
    bounds
}

/// Bounds on the group of one server. `nice` is its priority among servers, as nice(1) has it.
pub(super) fn bounds_for_server(limits: &GroupLimits, nice: u16) -> Vec<Bound> {
    let mut bounds = memory_bounds(limits.memory_max.bytes());
    // Among groups the priorities of processes count for nothing.
    bounds.push(bound("cpu", "cpu.weight.nice", nice));
    if limits.cpu_percent_max != 0 {
        let (percent, period_us) = (u64::from(limits.cpu_percent_max), 100_000);
        let quota_us = percent * period_us / 100;
        bounds.push(bound("cpu", "cpu.max", format!("{quota_us} {period_us}")));
    }
    bounds.push(bound("pids", "pids.max", limits.processes_max));
    bounds
}

/// Memory without swap: a server at its limit must not push the machine into swapping.
fn memory_bounds(bytes_max: u64) -> Vec<Bound> {
    let swap = Bound { presence: Presence::Optional, ..bound("memory", "memory.swap.max", 0) };
    vec![bound("memory", "memory.max", bytes_max), swap]
}

fn bound(controller: &'static str, file: &'static str, value: impl ToString) -> Bound {
    Bound { controller, file, value: value.to_string(), presence: Presence::Always }
}
