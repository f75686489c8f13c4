//! What machines of different sizes get.

use expect_test::expect;

use super::*;

fn machine(memory_gib: u64, cores: u32) -> Machine {
    Machine {
        memory: ByteSize::gib(memory_gib),
        cores,
        disk: ByteSize::gib(20),
        copy_on_write: true,
    }
}

const BUILD: Build = Build { major: 18, wal_compression: "off" };

fn value(settings: &[Setting], name: &str) -> String {
    let found = settings.iter().find(|setting| setting.name == name);
    found.map(|setting| setting.value.clone()).unwrap_or_default()
}

#[test]
fn a_small_machine() {
    let settings = fit_settings(&machine(24, 2), &BUILD, 200);
    let shown: Vec<String> = settings
        .iter()
        .take(18)
        .map(|setting| format!("{} = {}", setting.name, setting.value))
        .collect();
    expect![[r"
        max_connections = 200
        shared_buffers = 3072MB
        effective_cache_size = 12288MB
        work_mem = 15MB
        maintenance_work_mem = 384MB
        autovacuum_work_mem = 192MB
        huge_pages = try
        wal_level = replica
        wal_compression = off
        wal_buffers = 16MB
        max_wal_size = 2048MB
        min_wal_size = 256MB
        checkpoint_timeout = 15min
        checkpoint_completion_target = 0.9
        wal_recycle = off
        wal_init_zero = off
        random_page_cost = 1.1
        effective_io_concurrency = 64"]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn memory_times_sessions_never_exceeds_the_machine() {
    for memory_gib in [1, 2, 8, 64, 512] {
        for sessions in [10, 100, 200, 1_000] {
            let settings = fit_settings(&machine(memory_gib, 4), &BUILD, sessions);
            let megabytes = |name: &str| -> u64 {
                value(&settings, name).trim_end_matches("MB").parse().unwrap()
            };
            // 1 MB is the floor; a thousand sessions on one gigabyte are the user's own choice.
            if megabytes("work_mem") > 1 {
                let sum = megabytes("shared_buffers")
                    + megabytes("work_mem") * u64::from(sessions) * 2
                    + megabytes("autovacuum_work_mem") * 3;
                assert!(sum <= memory_gib << 10, "{memory_gib} GiB, {sessions} sessions: {sum} MB");
            }
        }
    }
}

#[test]
fn older_versions_get_no_setting_they_do_not_know() {
    let build = Build { major: 15, wal_compression: "lz4" };
    let settings = fit_settings(&machine(8, 4), &build, 100);
    assert_eq!(value(&settings, "io_method"), "");
    assert_eq!(value(&settings, "wal_compression"), "lz4");
}

#[test]
fn every_setting_says_why() {
    let settings = fit_settings(&machine(8, 4), &BUILD, 100);
    assert!(settings.iter().all(|setting| !setting.reason.is_empty()));
    let text = render_config(&settings, &machine(8, 4));
    assert!(text.contains("# solid-state storage: a random page costs little more than the next one\nrandom_page_cost = 1.1\n"));
}

#[test]
fn meminfo_is_read_as_the_kernel_writes_it() {
    assert_eq!(
        parse_meminfo("MemTotal:       24631064 kB\nMemFree: 1 kB\n"),
        Some(24_631_064 << 10)
    );
    assert_eq!(parse_meminfo(""), None);
}
