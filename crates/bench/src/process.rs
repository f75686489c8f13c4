//! Processor time of processes, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// A process is worth naming when it used this share of a core.
const SHARE_MIN: f64 = 0.01;

/// Most processes that are named.
const NAMED_PROCESSES_MAX: usize = 5;

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`: a thread of the kernel itself.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Every process of the machine at one moment, as far as this one sees them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    processes: BTreeMap<u32, Process>,
    /// Time that processors were not idle.
    busy_time: Duration,
}

#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    parent: u32,
    is_kernel: bool,
    /// Tells a process from a later one with the same pid.
    start_ticks: u64,
    cpu_time: Duration,
    /// Of children that have ended and were waited for.
    children_cpu_time: Duration,
}

/// Processor time used between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time of this process and of what it started.
    pub own: Duration,
    /// Of the measured system.
    pub system: Duration,
    /// Of the kernel's threads: write-back, file systems, loop devices. Whose work they did is not
    /// known; on a quiet machine it is the system's.
    pub kernel: Duration,
    /// Of all other processes.
    pub other: Duration,
    /// The largest others by name, with their time.
    pub largest_others: BTreeMap<String, Duration>,
}

/// Processor time of one snapshot, by owner.
struct Shares {
    own: Duration,
    system: Duration,
    kernel: Duration,
}

impl Snapshot {
    /// Looks at every process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn take() -> Result<Self> {
        let mut processes = BTreeMap::new();
        for entry in fs::read_dir("/proc").context("read /proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A process that ended meanwhile is none of this moment.
            if let Ok(stat) = fs::read_to_string(entry.path().join("stat"))
                && let Some((mut process, threads)) = parse_stat(&stat)
            {
                if threads == 1
                    && !process.is_kernel
                    && let Some(cpu_time) = precise_cpu_time(&entry.path())
                {
                    process.cpu_time = cpu_time;
                }
                processes.insert(pid, process);
            }
        }
        let stat = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Ok(Self { processes, busy_time: parse_busy_time(&stat) })
    }

    /// The processes `roots` and all that descend from them.
    pub fn tree(&self, roots: &[u32]) -> BTreeSet<u32> {
        let mut tree: BTreeSet<u32> = roots.iter().copied().collect();
        loop {
            let children: Vec<u32> = self
                .processes
                .iter()
                .filter(|(pid, process)| tree.contains(&process.parent) && !tree.contains(*pid))
                .map(|(pid, _)| *pid)
                .collect();
            if children.is_empty() {
                return tree;
            }
            tree.extend(children);
        }
    }

    /// The parent of a process.
    pub fn parent(&self, pid: u32) -> Option<u32> {
        self.processes.get(&pid).map(|process| process.parent)
    }

    /// The name of a process.
    pub fn name(&self, pid: u32) -> Option<&str> {
        self.processes.get(&pid).map(|process| process.name.as_str())
    }

    /// Processor time used since `before`; `roots` are the first processes of the measured system.
    pub(crate) fn usage_since(&self, before: &Self, roots: &[u32]) -> Usage {
        let own_pid = std::process::id();
        let (earlier, later) =
            (before.times_by_owner(own_pid, roots), self.times_by_owner(own_pid, roots));
        let own = later.own.saturating_sub(earlier.own);
        let system = later.system.saturating_sub(earlier.system);
        let kernel = later.kernel.saturating_sub(earlier.kernel);
        let busy = self.busy_time.saturating_sub(before.busy_time);
        Usage {
            own,
            system,
            kernel,
            other: busy.saturating_sub(system + own + kernel),
            largest_others: self.largest_others_since(before, own_pid, roots),
        }
    }

    /// Ticks by owner. The system may have been started by this process; its time is then not
    /// counted as this process's own.
    fn times_by_owner(&self, own_pid: u32, roots: &[u32]) -> Shares {
        let system = self.tree(roots);
        let mut own = self.tree(&[own_pid]);
        own.retain(|pid| !system.contains(pid));
        // The time of ended children is with their parent, so nothing is lost with them.
        let cpu_time_of = |tree: &BTreeSet<u32>| {
            let processes = tree.iter().filter_map(|pid| self.processes.get(pid));
            processes.map(|process| process.cpu_time + process.children_cpu_time).sum()
        };
        let kernel = self.processes.values().filter(|process| process.is_kernel);
        Shares {
            own: cpu_time_of(&own),
            system: cpu_time_of(&system),
            kernel: kernel.map(|thread| thread.cpu_time).sum(),
        }
    }

    /// The other processes with the most time, by name.
    fn largest_others_since(
        &self,
        before: &Self,
        own_pid: u32,
        roots: &[u32],
    ) -> BTreeMap<String, Duration> {
        let own_and_system = self.tree(&[&[own_pid], roots].concat());
        let mut by_name: BTreeMap<String, Duration> = BTreeMap::new();
        for (pid, process) in &self.processes {
            if process.is_kernel || own_and_system.contains(pid) {
                continue;
            }
            let earlier = before
                .processes
                .get(pid)
                .filter(|earlier| earlier.start_ticks == process.start_ticks)
                .map_or(Duration::ZERO, |earlier| earlier.cpu_time);
            *by_name.entry(process.name.clone()).or_default() +=
                process.cpu_time.saturating_sub(earlier);
        }
        let mut largest: Vec<_> = by_name.into_iter().filter(|(_, run)| !run.is_zero()).collect();
        largest.sort_by_key(|(_, run)| std::cmp::Reverse(*run));
        largest.truncate(NAMED_PROCESSES_MAX);
        largest.into_iter().collect()
    }
}

impl Usage {
    /// The named processes with their share in cores, those worth naming.
    pub(crate) fn named_shares(&self, wall: Duration) -> BTreeMap<String, f64> {
        self.largest_others
            .iter()
            .map(|(name, time)| (name.clone(), time.as_secs_f64() / wall.as_secs_f64()))
            .filter(|(_, share)| *share >= SHARE_MIN)
            .collect()
    }
}

/// The processor time of a process with one thread to the nanosecond, from `/proc/PID/schedstat`
/// (the kernel's `Documentation/scheduler/sched-stats.rst`). In `stat` it is rounded down to ticks
/// of 10 ms, which of hundreds of processes that do 2 ms of work each may leave nothing.
fn precise_cpu_time(process: &Path) -> Option<Duration> {
    let text = fs::read_to_string(process.join("schedstat")).ok()?;
    let nanoseconds = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Reads `/proc/PID/stat`; see proc_pid_stat(5): the process and how many threads it has. The name
/// is in parentheses and may hold any.
fn parse_stat(stat: &str) -> Option<(Process, u64)> {
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    // From here on fields are counted from the third, the state.
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // Those of children are signed there, and never negative.
    let process = Process {
        name,
        parent: u32::try_from(number(4)?).ok()?,
        is_kernel: number(9)? & KERNEL_THREAD != 0,
        cpu_time: ticks_to_duration(number(14)? + number(15)?),
        children_cpu_time: ticks_to_duration(number(16)? + number(17)?),
        start_ticks: number(22)?,
    };
    Some((process, number(20)?))
}

/// User, nice and system time of the first line of `/proc/stat`. Interrupts are left out, as they
/// belong to no process.
fn parse_busy_time(stat: &str) -> Duration {
    let fields = stat.lines().next().unwrap_or_default();
    let times: Vec<u64> = fields
        .split_ascii_whitespace()
        .skip(1)
        .take(3)
        .filter_map(|field| field.parse().ok())
        .collect();
    ticks_to_duration(times.iter().sum())
}

fn ticks_to_duration(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests;
