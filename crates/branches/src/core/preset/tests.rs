//! Which settings a branch gets.

use super::*;

fn value(settings: &[(String, String)], name: &str) -> Option<String> {
    settings.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value.clone())
}

fn name() -> BranchName {
    "pr-1".parse().unwrap()
}

#[test]
fn a_fast_branch_does_not_flush_and_a_durable_one_does() {
    let fast = settings(Preset::Small, false, &BTreeMap::new(), 18, "", &name());
    assert_eq!(value(&fast, "fsync").as_deref(), Some("off"));
    assert_eq!(value(&fast, "shared_buffers").as_deref(), Some("16MB"));
    assert_eq!(value(&fast, "io_method").as_deref(), Some("sync"));
    let durable = settings(Preset::Large, true, &BTreeMap::new(), 17, "", &name());
    assert_eq!(value(&durable, "fsync").as_deref(), Some("on"));
    assert_eq!(value(&durable, "shared_buffers").as_deref(), Some("64MB"));
    assert_eq!(value(&durable, "io_method"), None);
}

#[test]
fn a_twin_keeps_the_sources_settings_but_connects_to_no_other_server() {
    let twin = settings(Preset::Twin, true, &BTreeMap::new(), 18, "", &name());
    for kept in ["fsync", "shared_buffers", "wal_level", "checkpoint_timeout", "autovacuum"] {
        assert_eq!(value(&twin, kept), None, "{kept}");
    }
    for off in
        ["archive_command", "primary_conninfo", "synchronous_standby_names", "listen_addresses"]
    {
        assert_eq!(value(&twin, off).as_deref(), Some(""), "{off}");
    }
}

#[test]
fn chosen_settings_override_the_preset() {
    let chosen = BTreeMap::from([("shared_buffers".to_owned(), "48MB".to_owned())]);
    let settings = settings(Preset::Small, false, &chosen, 18, "", &name());
    assert_eq!(value(&settings, "shared_buffers").as_deref(), Some("48MB"));
}

#[test]
fn schedulers_are_not_preloaded() {
    assert_eq!(without_schedulers(""), "");
    assert_eq!(
        without_schedulers("pg_stat_statements, pg_cron,auto_explain,$libdir/pg_partman_bgw"),
        "pg_stat_statements,auto_explain"
    );
}
