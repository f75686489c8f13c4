//! What is a difference and what is not.

use super::*;
use crate::sample;

/// The names of what differs after `change` was made to B.
fn named(change: impl FnOnce(&mut ResultFile)) -> Vec<String> {
    let (a, mut b) = (sample::file(), sample::file());
    change(&mut b);
    let differences = differences(&a, &b);
    differences.into_iter().map(|found| found.name).collect()
}

#[test]
fn another_egret_is_what_one_compares() {
    let found = named(|b| {
        b.environment.egret_version = "0.2.0".to_owned();
        b.environment.egret_commit = "fedcba".to_owned();
        b.environment.binary_sha256 = Some("ff".repeat(32));
        b.command = "another path/egret bench".to_owned();
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_branch_has_settings_of_an_instance_too() {
    let with = |name: &str| {
        let name = name.to_owned();
        named(|b| {
            let settings = &mut b.environment.postgres_settings;
            settings.insert(name, "x".to_owned());
        })
    };
    assert!(with("port").is_empty() && with("branch.port").is_empty());
    assert_eq!(with("branch.fsync"), ["postgres_settings.branch.fsync"]);
}

#[test]
fn every_condition_is_named() {
    type Change = fn(&mut ResultFile);
    let changes: [(&str, Change); 13] = [
        ("scenario", |b| b.scenario = "queue".to_owned()),
        ("data_set", |b| b.environment.data_set = "other".to_owned()),
        ("build_profile", |b| b.environment.build_profile = "dev".to_owned()),
        ("generator_profile", |b| {
            let generator = b.environment.generator.as_mut().unwrap();
            generator.build_profile = "dev".to_owned();
        }),
        ("cpu_model", |b| b.environment.cpu_model = "other".to_owned()),
        ("cpus", |b| b.environment.cpus = 64),
        ("memory", |b| b.environment.memory_bytes = 16_000_000_000),
        ("kernel", |b| b.environment.kernel = "6.12.1".to_owned()),
        ("file_system", |b| b.environment.file_system = "xfs".to_owned()),
        ("mount_options", |b| b.environment.mount_options = "rw".to_owned()),
        ("postgres_version", |b| b.environment.postgres_version = None),
        ("postgres_settings.work_mem", |b| {
            let settings = &mut b.environment.postgres_settings;
            settings.insert("work_mem".to_owned(), "64MB".to_owned());
        }),
        ("parameters.mode", |b| {
            b.parameters.insert("mode".to_owned(), "ddl".into());
        }),
    ];
    for (name, change) in changes {
        assert_eq!(named(change), [name]);
        assert!(is_known(name), "{name}");
    }
}

#[test]
fn what_every_server_and_run_has_of_its_own_is_no_difference() {
    let found = named(|b| {
        let environment = &mut b.environment;
        environment.memory_bytes += 500_000_000;
        environment.kernel = "6.1.0-17-amd64".to_owned();
        environment.mount_options = "noatime,subvolid=5,rw".to_owned();
        let port = ("port".to_owned(), "5499".to_owned());
        environment.postgres_settings.extend([port]);
        b.parameters.insert("out".to_owned(), "b.json".into());
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_group_covers_its_members() {
    let allowed = ["parameters".to_owned(), "postgres_settings.work_mem".to_owned()];
    assert!(is_allowed("parameters.mode", &allowed));
    assert!(is_allowed("postgres_settings.work_mem", &allowed));
    assert!(!is_allowed("postgres_settings.fsync", &allowed));
    assert!(!is_allowed("cpus", &allowed));
}

#[test]
fn a_name_that_nothing_has_is_not_known() {
    for name in ["weather", "parameters.", "cpus.model", ""] {
        assert!(!is_known(name), "{name}");
    }
}

#[test]
fn a_slower_disk_and_busy_neighbours_are_said() {
    let (a, mut b) = (sample::environment(), sample::environment());
    b.binary_sha256 = Some("ff".repeat(32));
    b.fsync_ms = Some(4.0);
    b.other_cpu = 1.2;
    b.seed = 2;
    assert_eq!(
        notes(&a, &b),
        [
            "the seeds differ (1 and 2): arrivals and values differ",
            "fsync took 0.40 ms at A and 4.00 ms at B",
            "other processes used 1.2 cores during B",
        ]
    );
    let generator = b.generator.as_mut().unwrap();
    generator.binary_sha256 = Some("ff".repeat(32));
    generator.commit = "fedcba9876".to_owned();
    let last = "measured by different programs: 0123456789ab in A, fedcba9876 in B";
    assert_eq!(notes(&a, &b).last().unwrap(), last);
    b.generator = None;
    for unknown in [None, Some(0.0)] {
        b.fsync_ms = unknown;
        assert_eq!(notes(&a, &b).len(), 2, "{unknown:?}");
    }
}
