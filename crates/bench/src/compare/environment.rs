//! What must be the same for two results to be comparable, and what only has to be said.
//!
//! Version, commit and binary of the measured Egret are not looked at: they are what one compares.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::result::{Environment, ResultFile};

/// One thing that differs between A and B.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the condition, as for `--allow-different`.
    pub name: String,
    /// The value in A.
    pub a: String,
    /// The value in B.
    pub b: String,
}

impl Difference {
    fn new(name: impl Into<String>, a: impl ToString, b: impl ToString) -> Self {
        Self { name: name.into(), a: a.to_string(), b: b.to_string() }
    }
}

/// Names without a member; `parameters` and `postgres_settings` have one behind a dot.
pub(crate) const CONDITION_NAMES: [&str; 13] = [
    "scenario",
    "parameters",
    "data_set",
    "build_profile",
    "generator_profile",
    "cpu_model",
    "cpus",
    "memory",
    "kernel",
    "file_system",
    "mount_options",
    "postgres_version",
    "postgres_settings",
];

/// Options about output and repetition: they are no property of what was measured.
const IGNORED_PARAMETERS: [&str; 5] = ["out", "repeat", "json", "profile", "explain"];

/// Settings that name an instance: they differ between any two servers.
const INSTANCE_SETTINGS: [&str; 14] = [
    "cluster_name",
    "config_file",
    "data_directory",
    "event_source",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "log_directory",
    "log_filename",
    "port",
    "primary_conninfo",
    "primary_slot_name",
    "unix_socket_directories",
];

/// Stands before the names of a branch's settings.
const BRANCH_PREFIX: &str = "branch.";

/// Machines of one size report a little more or less memory, by firmware and kernel.
const MEMORY_TOLERANCE: f64 = 0.1;
/// Fsync is measured in a moment: only a factor says that the disk is another one.
const FSYNC_FACTOR: f64 = 3.0;
/// Cores that other processes may use without a warning.
const OTHER_CPU_MAX: f64 = 0.5;

/// Whether `name` is something that [`differences`] can report.
pub fn is_known(name: &str) -> bool {
    let is_condition = CONDITION_NAMES.contains(&name);
    let is_member = name.split_once('.').is_some_and(|(group, member)| {
        matches!(group, "parameters" | "postgres_settings") && !member.is_empty()
    });
    is_condition || is_member
}

/// Whether one of `allowed` covers `name`, by itself or as the group it belongs to.
pub fn is_allowed(name: &str, allowed: &[String]) -> bool {
    let group = name.split_once('.').map(|(group, _)| group);
    allowed.iter().any(|allowed| allowed == name || Some(allowed.as_str()) == group)
}

/// Everything that differs in a way that matters.
pub fn differences(a: &ResultFile, b: &ResultFile) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare_text = |name: &str, a: &str, b: &str| {
        if a != b {
            found.push(Difference::new(name, a, b));
        }
    };
    let (environment_a, environment_b) = (&a.environment, &b.environment);
    compare_text("scenario", &a.scenario, &b.scenario);
    compare_text("data_set", &environment_a.data_set, &environment_b.data_set);
    compare_text("build_profile", &environment_a.build_profile, &environment_b.build_profile);
    compare_text(
        "generator_profile",
        generator_profile(environment_a),
        generator_profile(environment_b),
    );
    compare_text("cpu_model", &environment_a.cpu_model, &environment_b.cpu_model);
    compare_text("cpus", &environment_a.cpus.to_string(), &environment_b.cpus.to_string());
    compare_text("file_system", &environment_a.file_system, &environment_b.file_system);
    compare_text(
        "mount_options",
        &normalized_mount_options(&environment_a.mount_options),
        &normalized_mount_options(&environment_b.mount_options),
    );
    compare_text(
        "postgres_version",
        environment_a.postgres_version.as_deref().unwrap_or("none"),
        environment_b.postgres_version.as_deref().unwrap_or("none"),
    );
    if kernel_release(&environment_a.kernel) != kernel_release(&environment_b.kernel) {
        compare_text("kernel", &environment_a.kernel, &environment_b.kernel);
    }
    if !is_same_memory(environment_a.memory_bytes, environment_b.memory_bytes) {
        let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
        let (memory_a, memory_b) =
            (gigabytes(environment_a.memory_bytes), gigabytes(environment_b.memory_bytes));
        found.push(Difference::new("memory", memory_a, memory_b));
    }
    found.extend(member_differences(
        "parameters",
        &a.parameters,
        &b.parameters,
        &IGNORED_PARAMETERS,
        Value::to_string,
    ));
    found.extend(member_differences(
        "postgres_settings",
        &environment_a.postgres_settings,
        &environment_b.postgres_settings,
        &INSTANCE_SETTINGS,
        Clone::clone,
    ));
    found
}

/// What a reader should know although it does not keep the two from being compared.
pub fn notes(a: &Environment, b: &Environment) -> Vec<String> {
    let mut notes = Vec::new();
    if a.seed != b.seed {
        notes.push(format!(
            "the seeds differ ({} and {}): arrivals and values differ",
            a.seed, b.seed
        ));
    }
    if a.kernel != b.kernel && kernel_release(&a.kernel) == kernel_release(&b.kernel) {
        notes.push(format!("kernel {} in A, {} in B", a.kernel, b.kernel));
    }
    if let (Some(fsync_a), Some(fsync_b)) = (fsync_ms(a), fsync_ms(b))
        && fsync_a.max(fsync_b) > fsync_a.min(fsync_b) * FSYNC_FACTOR
    {
        notes.push(format!("fsync took {fsync_a:.2} ms at A and {fsync_b:.2} ms at B"));
    }
    for (side, environment) in [("A", a), ("B", b)] {
        if environment.other_cpu > OTHER_CPU_MAX {
            notes.push(format!(
                "other processes used {:.1} cores during {side}",
                environment.other_cpu
            ));
        }
    }
    if a.binary_sha256.is_some() && a.binary_sha256 == b.binary_sha256 {
        notes.push("the same binary was measured in both".to_owned());
    }
    if let (Some(generator_a), Some(generator_b)) = (&a.generator, &b.generator)
        && generator_a.binary_sha256 != generator_b.binary_sha256
    {
        notes.push(format!(
            "measured by different programs: {} in A, {} in B",
            generator_a.commit, generator_b.commit
        ));
    }
    notes
}

/// The fsync latency where it is known: the first result files have 0 where it is not.
fn fsync_ms(environment: &Environment) -> Option<f64> {
    environment.fsync_ms.filter(|latency| *latency > 0.0)
}

/// How the program that measured was built; in the first result files it was the measured one.
fn generator_profile(environment: &Environment) -> &str {
    let generator = environment.generator.as_ref();
    generator.map_or(&environment.build_profile, |program| &program.build_profile)
}

fn member_differences<V: PartialEq>(
    group: &str,
    a: &BTreeMap<String, V>,
    b: &BTreeMap<String, V>,
    ignored: &[&str],
    to_text: impl Fn(&V) -> String,
) -> Vec<Difference> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let value_text = |value: Option<&V>| value.map_or("not set".to_owned(), &to_text);
    names
        .into_iter()
        .filter(|name| !ignored.contains(&name.strip_prefix(BRANCH_PREFIX).unwrap_or(name)))
        .map(|name| (name, a.get(name), b.get(name)))
        .filter(|(_, value_a, value_b)| value_a != value_b)
        .map(|(name, of_a, of_b)| {
            Difference::new(format!("{group}.{name}"), value_text(of_a), value_text(of_b))
        })
        .collect()
}

/// Major and minor version: patch releases of a kernel are taken for the same.
fn kernel_release(kernel: &str) -> (&str, &str) {
    let mut parts = kernel.split(['.', '-', '+']);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

fn is_same_memory(a: u64, b: u64) -> bool {
    let (more, less) = (a.max(b) as f64, a.min(b) as f64);
    more - less <= more * MEMORY_TOLERANCE
}

/// Options in one order, without those that say which subvolume is mounted.
fn normalized_mount_options(options: &str) -> String {
    let mut options: Vec<&str> = options
        .split(',')
        .map(str::trim)
        .filter(|option| !option.starts_with("subvol=") && !option.starts_with("subvolid="))
        .collect();
    options.sort_unstable();
    options.join(",")
}

#[cfg(test)]
mod tests;
