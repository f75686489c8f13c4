//! Origins, refusals with a place and a suggestion, and secrets that stay hidden.

use expect_test::{Expect, expect};

use super::*;

fn from_text(text: &str) -> Result<Layers, SettingError> {
    let mut layers = Layers::default();
    file::parse("egret.toml", text, &mut layers)?;
    check(&layers, &declared_settings())?;
    Ok(layers)
}

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&from_text(text).unwrap_err().to_string());
}

fn environment(name: &str, value: &str) -> [(String, String); 1] {
    [(name.to_owned(), value.to_owned())]
}

#[test]
fn every_value_of_a_file_knows_its_line() {
    let layers =
        from_text("# a comment\n[egret]\n\nlog_level = \"debug\"\ndata_dir = '/srv/egret'\n")
            .unwrap();
    assert_eq!(layers.origin("egret.log_level").to_string(), "egret.toml:4");
    assert_eq!(layers.origin("egret.data_dir").to_string(), "egret.toml:5");
    let program: ProgramConfig = layers.section().unwrap();
    assert_eq!(program.data_dir, Some(PathBuf::from("/srv/egret")));
}

#[test]
fn a_file_is_refused_with_its_line() {
    refused(
        "[egret]\nlog_lvel = \"debug\"\n",
        expect!["egret.toml:2: unknown setting `egret.log_lvel`: did you mean `egret.log_level`?"],
    );
    refused(
        "\nlog_level = \"debug\"\n",
        expect!["egret.toml:2: `log_level` stands outside a section: begin one with `[section]`"],
    );
    refused(
        "[egret]\nlog_level = [\"debug\"]\n",
        expect![
            "egret.toml:2: egret.log_level: an array cannot be a setting: write a number, true, false or \"text\""
        ],
    );
    refused(
        "[egret]\ndata_dir = \"\"\nlog_level = \"a\"\nlog_level = \"b\"\n",
        expect!["egret.toml:4: duplicate key"],
    );
}

#[test]
fn later_layers_win() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.toml");
    std::fs::write(&path, "[egret]\nlog_level = \"warn\"\nlog_format = \"json\"\n").unwrap();
    let load = |environment: &[(String, String)], flags: &[(String, String)]| {
        Configuration::load(Some(&path), environment.to_vec(), flags).unwrap()
    };
    let level = |configuration: &Configuration| {
        let all = configuration.effective().unwrap();
        let found = all.iter().find(|setting| setting.key == "egret.log_level").unwrap();
        format!("{} from {}", found.value, found.origin)
    };
    assert_eq!(level(&load(&[], &[])), format!("warn from {}:2", path.display()));
    let variable = environment("EGRET_LOG_LEVEL", "debug");
    assert_eq!(level(&load(&variable, &[])), "debug from environment EGRET_LOG_LEVEL");
    let flag = [("egret.log_level".to_owned(), "trace".to_owned())];
    assert_eq!(level(&load(&variable, &flag)), "trace from flag --set egret.log_level=trace");
}

#[test]
fn unknown_variables_are_refused_and_the_clients_are_none() {
    for name in ["EGRET_TOKEN", "EGRET_URL", "EGRET_TEST_PYTHON", "PATH"] {
        Configuration::load(None, environment(name, "x"), &[]).unwrap();
    }
    let error = Configuration::load(None, environment("EGRET_LOG_LEVLE", "x"), &[]).unwrap_err();
    expect!["environment EGRET_LOG_LEVLE: unknown variable: did you mean `EGRET_LOG_LEVEL`?"]
        .assert_eq(&error.to_string());
    let error = Configuration::load(None, environment("EGRET_FOO", "x"), &[]).unwrap_err();
    expect!["environment EGRET_FOO: unknown variable: `egret config --reference` lists them all"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_missing_file_is_an_error_only_when_asked_for() {
    let error =
        Configuration::load(Some(Path::new("/nonexistent/egret.toml")), [], &[]).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/egret.toml: cannot be read: "), "{error}");
}

#[test]
fn secrets_are_masked() {
    for (key, value, shown) in [
        ("postgres.password", "hunter2", "••••••"),
        ("server.admin_token", "hunter2", "••••••"),
        ("postgres.password", "", ""),
        ("server.tokens_max", "10", "10"),
        (
            "series.alert_webhooks",
            "https://u:hunter2@a.example/services/hunter2;http://b:9093",
            "https://u:••••••@a.example/••••••; http://b:9093",
        ),
        ("series.external_url", "https://hunter2@a.example/@me", "https://••••••@a.example/@me"),
        ("oidc.issuer", "https://hunter2@a.example", "https://••••••@a.example"),
        ("postgres.url", "postgres://me:hun@ter2@db/app", "postgres://me:••••••@db/app"),
        ("postgres.url", "postgres://me@db/app", "postgres://me@db/app"),
        (
            "postgres.url",
            "postgres://me:hunter2@db/app?sslpassword=hunter3",
            "postgres://me:••••••@db/app?sslpassword=••••••",
        ),
        ("postgres.url", "host=db password='hun ter2' user=me", "host=db password=••••••"),
    ] {
        assert_eq!(mask_secrets(key, value), shown, "{key} {value}");
    }
}

#[test]
fn every_setting_is_documented_and_has_one_variable() {
    let all = declared_settings();
    let page = reference();
    for setting in &all {
        assert!(setting.doc.split_whitespace().count() > 2, "{}", setting.key);
        assert!(page.contains(&format!("### {}\n", setting.key)), "{}", setting.key);
        let same =
            all.iter().filter(|other| variable_name(&other.key) == variable_name(&setting.key));
        assert_eq!(same.count(), 1, "{}", variable_name(&setting.key));
        assert!(!CLIENT_VARIABLES.contains(&variable_name(&setting.key).as_str()));
    }
}

/// Numbers, sizes and durations that may be zero, by section: nothing is kept, none may be made, at
/// once, or what the documentation says.
const MAY_BE_ZERO: [(&str, &str); 9] = [
    ("postgres", "stop_timeout write_back_interval"),
    (
        "branches",
        "free_min free_critical branches_max tenant_branches_max templates_kept pool_min pool_demand_max pool_max pool_sessions pool_quiet pool_patience session_idle stop_timeout start_concurrency query_concurrency labels_max uid_count cpu_percent_max oom_score_adj nice",
    ),
    (
        "queue",
        "partitions queues_max tenant_queues_max tenant_tasks_max tasks_bytes_max tenant_tasks_bytes_max schedules_max tenant_schedules_max result_bytes_max attachment_bytes_max attachments_max attachments_bytes_total_max tenant_attachments_bytes_max chain_messages_max spare_segments cache_size lease_grace priority_wait_max callback_concurrency_per_host outbox_window watchers_max tenant_watchers_max",
    ),
    (
        "series",
        "shards future_max retention size_max settle merge_rate block_cache ha_clusters_max queries_max query_threads query_samples_max query_memory_max query_points_max rule_groups_at_once scrape_targets_max alert_repeat metadata_bytes_max",
    ),
    ("views", "views_max fuse_changes change_task_size_max followers_max verify_every history_max"),
    (
        "documents",
        "names_max cascade_max collections_max query_paths_max query_paths_total_max requests_kept subscriptions_max",
    ),
    ("server", "port shutdown_timeout profile_duration_max"),
    ("oidc", "clock_leeway"),
    ("proxy", "port half_close_timeout stop_timeout"),
];

#[test]
fn zero_is_refused_by_name_where_it_makes_no_sense() {
    let is_number = |form: &str| {
        let beginnings = ["a whole number", "a size", "a duration"];
        beginnings.iter().any(|words| form.starts_with(words))
    };
    let mut may_be_zero: Vec<String> = MAY_BE_ZERO
        .iter()
        .flat_map(|(section, names)| names.split(' ').map(move |name| format!("{section}.{name}")))
        .collect();
    for setting in declared_settings().iter().filter(|setting| is_number(&setting.form)) {
        let mut layers = Layers::default();
        layers.put(&setting.key, "0", Origin::Default);
        let checked = check(&layers, &declared_settings());
        let known = may_be_zero.iter().position(|key| *key == setting.key);
        if let Some(place) = known {
            may_be_zero.swap_remove(place);
            assert_eq!(checked, Ok(()));
            continue;
        }
        let Err(refused) = checked else {
            panic!("{}: 0 is taken, and has no meaning", setting.key)
        };
        let expected = format!("default: {}: `0` is not {}", setting.key, setting.form);
        assert_eq!(refused.to_string(), expected);
        let is_bounded = setting.form.contains(" from ") && !setting.form.contains("from 0 to");
        assert!(is_bounded || setting.form.contains("; above "));
    }
    assert!(may_be_zero.is_empty(), "no such settings: {may_be_zero:?}");
}

#[test]
fn the_address_follows_the_servers_settings() {
    let at = |flags: &[(&str, &str)]| {
        let flags: Vec<(String, String)> =
            flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Configuration::load(None, [], &flags).unwrap().address()
    };
    let url = |flags| at(flags).unwrap().url.to_string();
    assert_eq!(url(&[]), "http://127.0.0.1:7070/");
    assert_eq!(
        url(&[("server.address", "0.0.0.0"), ("server.port", "8080")]),
        "http://127.0.0.1:8080/"
    );
    assert_eq!(url(&[("server.address", "::")]), "http://[::1]:7070/");
    assert_eq!(url(&[("server.address", "10.1.2.3")]), "http://10.1.2.3:7070/");
    assert!(at(&[("server.address", "::")]).unwrap().is_loopback());
    assert!(!at(&[("server.address", "10.1.2.3")]).unwrap().is_loopback());
    let error = at(&[("server.tls_certificate", "/nonexistent/cert.pem")]).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/cert.pem: "), "{error}");
}
