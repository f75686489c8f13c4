//! Which settings a branch is refused.

use super::*;

fn check(name: &str, value: &str) -> Result<(), String> {
    let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    check_settings(&settings, &BranchesConfig::default(), ByteSize::gib(8))
        .map_err(|error| error.to_string())
}

#[test]
fn settings_that_take_the_machine_are_refused_with_the_name_of_the_limit() {
    for (name, value, limit) in [
        ("max_connections", "100000", "branches.setting_sessions_max"),
        ("max_connections", "1e5", "branches.setting_sessions_max"),
        ("max_prepared_transactions", "200000", "branches.setting_sessions_max"),
        ("shared_buffers", "2GB", "branches.setting_memory_max"),
        ("shared_buffers", "1.5 GB", "branches.setting_memory_max"),
        ("shared_buffers", "1000000", "branches.setting_memory_max"),
        ("work_mem", "1TB", "branches.setting_memory_max"),
        ("maintenance_work_mem", "9999999999", "branches.setting_memory_max"),
        ("max_wal_size", "1TB", "branches.setting_wal_max"),
        ("min_wal_size", "900000", "branches.setting_wal_max"),
    ] {
        let refused = check(name, value).unwrap_err();
        assert!(refused.contains(limit), "{name}={value}: {refused}");
    }
    let refused = check("shared_buffers", "2GB").unwrap_err();
    assert!(refused.contains("but 2GB is needed"), "{refused}");
}

#[test]
fn what_another_notation_hides_is_refused() {
    for value in ["0x186A0", "inf", "NaN", "10 GiB", "-"] {
        check("max_connections", value).unwrap_err();
        check("shared_buffers", value).unwrap_err();
    }
}

#[test]
fn what_fits_the_machine_is_accepted() {
    for (name, value) in [
        ("max_connections", "200"),
        ("shared_buffers", "1GB"),
        ("shared_buffers", "131072"),
        ("work_mem", "64MB"),
        ("work_mem", "4096"),
        ("max_wal_size", "2GB"),
        ("jit", "on"),
    ] {
        check(name, value).unwrap();
    }
}
