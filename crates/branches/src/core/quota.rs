//! What a branch's settings may take of the machine.

use std::collections::BTreeMap;

use egret_base::Limit;
use egret_base::settings::ByteSize;

use crate::config::BranchesConfig;
use crate::error::BranchesError;

/// What a number in a setting counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Sessions, transactions or processes.
    Count,
    /// Bytes; a number without a unit counts this many.
    Bytes(u64),
}

/// Checks settings that take memory, processes or disk against the limits.
///
/// # Errors
/// [`BranchesError::Invalid`] with the limit's name.
pub fn check_settings(
    settings: &BTreeMap<String, String>,
    config: &BranchesConfig,
    machine_memory: ByteSize,
) -> Result<(), BranchesError> {
    for (name, value) in settings {
        let Some((limit, unit)) = limit_of(name, config, machine_memory) else {
            continue;
        };
        let requested = parse(value, unit).ok_or_else(|| BranchesError::Invalid {
            what: "settings",
            reason: format!("`{value}` is not a number with a unit that {name} accepts"),
        })?;
        limit.check(requested).map_err(|exceeded| {
            let message = match unit {
                Unit::Count => exceeded.to_string(),
                Unit::Bytes(_) => BranchesError::from_size_limit(exceeded).to_string(),
            };
            BranchesError::Invalid { what: "settings", reason: format!("{name}: {message}") }
        })?;
    }
    Ok(())
}

fn limit_of(
    name: &str,
    config: &BranchesConfig,
    machine_memory: ByteSize,
) -> Option<(Limit, Unit)> {
    let memory = config.setting_memory_max.map_or(machine_memory.bytes() / 8, ByteSize::bytes);
    let memory = Limit::new("branches.setting_memory_max", memory);
    let sessions = u64::from(config.setting_sessions_max);
    let sessions = Limit::new("branches.setting_sessions_max", sessions);
    let wal = Limit::new("branches.setting_wal_max", config.setting_wal_max.bytes());
    match name {
        "max_connections"
        | "max_prepared_transactions"
        | "max_parallel_workers"
        | "max_parallel_workers_per_gather" => Some((sessions, Unit::Count)),
        "shared_buffers" => Some((memory, Unit::Bytes(8 << 10))),
        "work_mem" | "maintenance_work_mem" => Some((memory, Unit::Bytes(1 << 10))),
        "max_wal_size" | "min_wal_size" => Some((wal, Unit::Bytes(1 << 20))),
        _ => None,
    }
}

/// Reads a number as PostgreSQL does (documentation, "Parameter Names and Values"), in decimal
/// notation alone; `None` for what is none. Fractions are rounded up.
fn parse(value: &str, unit: Unit) -> Option<u64> {
    let end = value.rfind(|c: char| c.is_ascii_digit() || c == '.')? + 1;
    let (number, suffix) = value.split_at(end);
    let number: f64 = number.trim().parse().ok()?;
    let factor = match (unit, suffix.trim()) {
        (Unit::Count, "") => 1,
        (Unit::Bytes(base), "") => base,
        (Unit::Bytes(_), "B") => 1,
        (Unit::Bytes(_), "kB") => 1 << 10,
        (Unit::Bytes(_), "MB") => 1 << 20,
        (Unit::Bytes(_), "GB") => 1 << 30,
        (Unit::Bytes(_), "TB") => 1_u64 << 40,
        _ => return None,
    };
    let total = number * factor as f64;
    // A negative number is PostgreSQL's to refuse; what is too large saturates.
    total.is_finite().then_some(total.ceil() as u64)
}

#[cfg(test)]
mod tests;
