//! The settings a branch's postmaster is started with.
//!
//! They are given on the command line, which wins over every file of the source that the data
//! directory still holds.

use std::collections::BTreeMap;

use crate::model::{BranchName, Preset};

/// Settings that a user may choose one by one.
pub const CHOOSABLE: [&str; 16] = [
    "autovacuum",
    "checkpoint_timeout",
    "deadlock_timeout",
    "effective_cache_size",
    "jit",
    "maintenance_work_mem",
    "max_connections",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "max_prepared_transactions",
    "max_wal_size",
    "min_wal_size",
    "random_page_cost",
    "shared_buffers",
    "track_io_timing",
    "work_mem",
];

/// What holds for every branch, whatever its preset: nothing reaches out, nothing of the source's
/// replication or archiving runs, nothing listens but the private socket.
const NEUTRAL: [(&str, &str); 23] = [
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("ssl", "off"),
    // In the data directory: memory below /dev/shm is shared by everything on the machine.
    ("dynamic_shared_memory_type", "mmap"),
    ("external_pid_file", ""),
    ("superuser_reserved_connections", "3"),
    ("archive_mode", "off"),
    ("archive_command", ""),
    ("archive_library", ""),
    ("restore_command", ""),
    ("archive_cleanup_command", ""),
    ("recovery_end_command", ""),
    ("primary_conninfo", ""),
    ("primary_slot_name", ""),
    ("synchronous_standby_names", ""),
    ("max_logical_replication_workers", "0"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    // A branch user's own mistakes must not fill the disk with log.
    ("log_min_messages", "fatal"),
    ("log_checkpoints", "off"),
    ("log_lock_waits", "off"),
    ("log_connections", ""),
    ("log_statement", "none"),
];

/// What the fast presets save: memory, background work and flushes that a throw-away copy of a
/// clean template does not need.
const FAST: [(&str, &str); 17] = [
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("wal_init_zero", "off"),
    ("wal_recycle", "off"),
    ("wal_buffers", "1MB"),
    // What is not flushed costs less whole than compressed.
    ("wal_compression", "off"),
    ("checkpoint_timeout", "1h"),
    ("bgwriter_lru_maxpages", "0"),
    ("autovacuum", "off"),
    ("max_connections", "50"),
    ("max_worker_processes", "4"),
    ("max_parallel_workers", "2"),
    ("max_parallel_workers_per_gather", "1"),
    ("huge_pages", "off"),
    ("jit", "off"),
    ("track_io_timing", "off"),
    ("effective_cache_size", "1GB"),
];

/// What makes a branch fast and not safe from a crash of the machine.
const NOT_DURABLE: [(&str, &str); 4] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("synchronous_commit", "off"),
    // A new table's pages go to its file when its transaction commits; nothing is gained by writing
    // them to the log as well.
    ("wal_skip_threshold", "0"),
];

const DURABLE: [(&str, &str); 4] = [
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    ("wal_skip_threshold", "2MB"),
];

/// Everything given on the command line of a branch's postmaster, later ones winning.
pub fn settings(
    preset: Preset,
    durable: bool,
    chosen: &BTreeMap<String, String>,
    postgres_major: u32,
    preload_libraries: &str,
    name: &BranchName,
) -> Vec<(String, String)> {
    let mut settings: Vec<(&str, &str)> = NEUTRAL.to_vec();
    // Before 18 the setting is a boolean.
    if postgres_major < 18 {
        settings.retain(|(name, _)| *name != "log_connections");
        settings.push(("log_connections", "off"));
    }
    if postgres_major >= 16 {
        settings.push(("reserved_connections", "0"));
    }
    if postgres_major >= 17 {
        // It needs more log than `wal_level=minimal` writes.
        settings.push(("summarize_wal", "off"));
    }
    if preset == Preset::Twin && postgres_major >= 18 {
        // A source may use io_uring, which leads around the filter of system calls.
        settings.push(("io_method", "worker"));
    }
    if preset != Preset::Twin {
        settings.extend(FAST);
        settings.extend(memory(preset));
        settings.extend(if durable { DURABLE } else { NOT_DURABLE });
        if postgres_major >= 18 {
            settings.push(("io_method", "sync"));
        }
    }
    let cluster_name = format!("egret/{name}");
    settings.push(("shared_preload_libraries", preload_libraries));
    settings.push(("cluster_name", &cluster_name));
    settings
        .into_iter()
        .chain(chosen.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Memory and log by preset.
fn memory(preset: Preset) -> [(&'static str, &'static str); 5] {
    let (buffers, work, maintenance, max_wal) = match preset {
        Preset::Small | Preset::Twin => ("16MB", "4MB", "16MB", "64MB"),
        Preset::Medium => ("32MB", "8MB", "32MB", "128MB"),
        Preset::Large => ("64MB", "16MB", "128MB", "512MB"),
    };
    [
        ("shared_buffers", buffers),
        ("work_mem", work),
        ("maintenance_work_mem", maintenance),
        ("max_wal_size", max_wal),
        ("min_wal_size", "32MB"),
    ]
}

/// Libraries that start workers of their own accord: jobs of the source must not run in a copy.
const SCHEDULERS: [&str; 7] =
    ["pg_cron", "pg_partman_bgw", "pg_squeeze", "pg_prewarm", "pg_net", "timetable", "powa"];

/// The source's preloaded libraries without schedulers; paths are kept as they are written.
pub(crate) fn without_schedulers(libraries: &str) -> String {
    let kept: Vec<&str> = libraries
        .split(',')
        .map(str::trim)
        .filter(|library| {
            let name = library.trim_matches('"').rsplit('/').next().unwrap_or_default();
            !name.is_empty() && !SCHEDULERS.contains(&name.trim_end_matches(".so"))
        })
        .collect();
    kept.join(",")
}

#[cfg(test)]
mod tests;
