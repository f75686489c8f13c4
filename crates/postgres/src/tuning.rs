//! Settings fitted to the machine, each with the reason a user reads in `egret.conf`.
//!
//! Pure: facts about the machine come in, settings come out. Memory per session is kept modest, so
//! that memory × sessions stays within the machine's memory.

use std::fmt::Write as _;

use egret_base::settings::ByteSize;

/// Facts about the machine that the settings depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Memory that this machine (or its control group) allows.
    pub memory: ByteSize,
    /// Number of processor cores.
    pub cores: u32,
    /// Room on the file system of the data directory.
    pub disk: ByteSize,
    /// Whether that file system copies on write (btrfs, reflinked XFS).
    pub copy_on_write: bool,
}

/// Features of the server that depend on its version and build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Major version, such as 18.
    pub major: u32,
    /// The fastest `wal_compression` method compiled in, `lz4` or `zstd`; else `off`.
    pub wal_compression: &'static str,
}

/// One setting with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name PostgreSQL knows.
    pub name: &'static str,
    /// The value as written to the file, unquoted.
    pub value: String,
    /// Why it has this value, for the comment in the file.
    pub reason: &'static str,
}

/// Settings for an embedded server that shares its machine with Egret and its branches.
pub(crate) fn fit_settings(machine: &Machine, build: &Build, sessions_max: u32) -> Vec<Setting> {
    let mut settings = memory_settings(machine, sessions_max);
    settings.extend(wal_settings(machine, build));
    settings.extend(io_settings(machine, build));
    settings.extend(monitoring_settings());
    settings
}

fn memory_settings(machine: &Machine, sessions_max: u32) -> Vec<Setting> {
    let memory = machine.memory.bytes();
    let shared = (memory / 8).clamp(ByteSize::mib(64).bytes(), ByteSize::gib(8).bytes());
    // A query may use several work_mem at once; a quarter of the memory for all sessions together,
    // two uses each, keeps the sum below what the machine has.
    let work = (memory / 4 / u64::from(sessions_max.max(1)) / 2)
        .clamp(ByteSize::mib(1).bytes(), ByteSize::mib(64).bytes());
    let maintenance = (memory / 64).clamp(ByteSize::mib(32).bytes(), ByteSize::mib(512).bytes());
    vec![
        setting("max_connections", sessions_max, "postgres.sessions_max"),
        setting(
            "shared_buffers",
            format_mb(shared),
            "an eighth of the memory: Egret and the branches use the same machine",
        ),
        setting(
            "effective_cache_size",
            format_mb(memory / 2),
            "what the kernel is likely to cache",
        ),
        setting(
            "work_mem",
            format_mb(work),
            "memory / 4 / sessions / 2, so that all sessions together stay within the memory",
        ),
        setting(
            "maintenance_work_mem",
            format_mb(maintenance),
            "index builds and vacuum, one at a time",
        ),
        setting(
            "autovacuum_work_mem",
            format_mb(maintenance / 2),
            "three workers at half of maintenance_work_mem",
        ),
        setting("huge_pages", "try", "used where the machine has reserved some"),
    ]
}

fn wal_settings(machine: &Machine, build: &Build) -> Vec<Setting> {
    let disk = machine.disk.bytes();
    let max_wal = (disk / 10).clamp(ByteSize::mib(128).bytes(), ByteSize::gib(8).bytes());
    let min_wal = (max_wal / 8).clamp(ByteSize::mib(80).bytes(), ByteSize::gib(1).bytes());
    let mut settings = vec![
        setting("wal_level", "replica", "base backups of this server are possible"),
        setting(
            "wal_compression",
            build.wal_compression,
            "full-page images are the larger part of the log; off where neither lz4 nor zstd is compiled in: pglz takes longer than writing them",
        ),
        setting("wal_buffers", "16MB", "one segment: a burst of commits does not wait for room"),
        setting(
            "max_wal_size",
            format_mb(max_wal),
            "a tenth of the disk at most: checkpoints are paced by time, not by volume",
        ),
        setting("min_wal_size", format_mb(min_wal), "segments kept for reuse"),
        setting(
            "checkpoint_timeout",
            "15min",
            "fewer full-page images than with the default of 5 min; recovery after a crash takes longer",
        ),
        setting("checkpoint_completion_target", "0.9", "writes spread over the interval"),
    ];
    if machine.copy_on_write {
        settings.push(setting(
            "wal_recycle",
            "off",
            "on a copy-on-write file system a new segment is cheaper than an old one",
        ));
        settings.push(setting(
            "wal_init_zero",
            "off",
            "zeros written in advance are copied again on a copy-on-write file system",
        ));
    }
    settings
}

fn io_settings(machine: &Machine, build: &Build) -> Vec<Setting> {
    let workers = machine.cores.clamp(2, 8);
    let parallel = machine.cores.clamp(1, 8);
    let mut settings = vec![
        setting(
            "random_page_cost",
            "1.1",
            "solid-state storage: a random page costs little more than the next one",
        ),
        setting("effective_io_concurrency", 64, "reads ahead of a bitmap scan"),
        setting("maintenance_io_concurrency", 64, "reads ahead of vacuum and recovery"),
        setting("max_worker_processes", parallel + 4, "the cores, and some for extensions"),
        setting("max_parallel_workers", parallel, "the cores"),
        setting(
            "max_parallel_workers_per_gather",
            (parallel / 2).max(1),
            "half of the cores for one query",
        ),
    ];
    if build.major >= 18 {
        settings.push(setting(
            "io_method",
            "worker",
            "asynchronous reads by worker processes; works on every kernel",
        ));
        settings.push(setting("io_workers", workers, "the cores, at least 2"));
    }
    settings
}

fn monitoring_settings() -> Vec<Setting> {
    vec![
        setting("track_io_timing", "on", "the doctor needs to know what reads cost"),
        setting("track_functions", "pl", "the doctor needs to know what functions cost"),
        setting("log_lock_waits", "on", "a wait of over a second is worth a line"),
        setting("log_checkpoints", "on", "how often and why"),
        setting(
            "log_line_prefix",
            "'%m [%p] %q%u@%d %a '",
            "process, user and database of every line",
        ),
        setting(
            "logging_collector",
            "on",
            "the server writes its own log, so that it outlives a crash of Egret",
        ),
        setting("log_directory", "'log'", "inside the data directory"),
        setting(
            "log_filename",
            "'postgres-%a.log'",
            "one file a weekday, so that the log never outgrows a week",
        ),
        setting(
            "log_truncate_on_rotation",
            "on",
            "last week's file of the same day is overwritten",
        ),
        setting("log_rotation_size", "0", "rotation by day only"),
    ]
}

fn setting(name: &'static str, value: impl ToString, reason: &'static str) -> Setting {
    Setting { name, value: value.to_string(), reason }
}

/// A size in whole megabytes as PostgreSQL reads it.
fn format_mb(bytes: u64) -> String {
    format!("{}MB", (bytes >> 20).max(1))
}

/// The file's text: a comment with the reason above each setting.
pub(crate) fn render_config(settings: &[Setting], machine: &Machine) -> String {
    let mut text = format!(
        "# Written by Egret at every start for this machine: {} cores, {} MB of memory, {} MB of disk.\n\
         # To change a value, use ALTER SYSTEM or user.conf in this directory; both win over this file.\n",
        machine.cores,
        machine.memory.bytes() >> 20,
        machine.disk.bytes() >> 20,
    );
    for setting in settings {
        write!(text, "\n# {}\n{} = {}\n", setting.reason, setting.name, setting.value)
            .expect("writing to a string does not fail");
    }
    text
}

/// Reads the facts of the machine that Egret runs on, for a data directory on `disk`.
pub fn detect_machine(disk: &std::path::Path) -> Machine {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let disk_bytes =
        rustix::fs::statvfs(disk).map_or(0, |answer| answer.f_blocks * answer.f_frsize);
    Machine {
        memory: ByteSize(memory_allowed()),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        disk: ByteSize(disk_bytes),
        copy_on_write: egret_linux::subvolume::is_btrfs(disk).unwrap_or(false),
    }
}

/// The machine's memory, or the control group's limit where that is smaller.
fn memory_allowed() -> u64 {
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_meminfo(&text))
        .unwrap_or(ByteSize::gib(1).bytes());
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    limit.map_or(total, |limit| total.min(limit))
}

/// `MemTotal` of proc_meminfo(5) in bytes.
fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests;
