//! Files of jobs, and the targets they make.

use expect_test::{Expect, expect};

use super::*;
use crate::core::scrape::find_targets;

fn check(text: &str, expected: Expect) {
    let shown = match parse("scrape.yml", text, ScrapeDefaults::default()) {
        Ok(configs) => configs.iter().map(show).collect(),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&shown);
}

fn show(config: &ScrapeConfig) -> String {
    let targets = find_targets(config, config.static_groups.iter().map(|group| (None, group)));
    let mut out = format!(
        "{} every {} within {} of {} bytes, {:?}\n",
        config.job_name,
        config.interval_ms,
        config.timeout_ms,
        config.limits.body_bytes,
        config.credentials
    );
    for target in &targets.active {
        out += &format!("+ {} {}\n", target.labels, target.url);
    }
    for labels in &targets.dropped {
        out += &format!("- {labels}\n");
    }
    for problem in &targets.problems {
        out += &format!("! {problem}\n");
    }
    out
}

#[test]
fn jobs() {
    check(
        r#"
scrape_configs:
  - job_name: node
    scrape_interval: 15s
    static_configs:
      - targets: ["a:9100", "b:9100", "a:9100"]
        labels: {env: prod}
  - job_name: secure
    scheme: https
    metrics_path: /probe
    params: {module: [http_2xx], target: [x, y]}
    body_size_limit: 1MB
    basic_auth: {username: me, password: hunter2}
    static_configs:
      - targets: ["c:443", "d:443", "bad/path", ""]
    relabel_configs:
      - {source_labels: [__address__], regex: 'd:.*', action: drop}
      - {source_labels: [__address__], target_label: __param_target}
      - {source_labels: [__address__], target_label: instance, regex: '(.*):.*'}
      - {target_label: __scrape_interval__, replacement: 5m}
  - job_name: token
    authorization: {credentials_file: /run/token}
    target_limit: 1
    static_configs: [{targets: [a, b]}]
"#,
        expect![[r#"
            node every 15000 within 10000 of 67108864 bytes, None
            + {env="prod", instance="a:9100", job="node"} http://a:9100/metrics
            + {env="prod", instance="b:9100", job="node"} http://b:9100/metrics
            secure every 60000 within 10000 of 1048576 bytes, Basic { username: "me", password: Here(Secret) }
            + {instance="c", job="secure"} https://c:443/probe?module=http_2xx&target=c%3A443&target=y
            - {__address__="d:443", __metrics_path__="/probe", __param_module="http_2xx", __param_target="x", __scheme__="https", __scrape_interval__="60000ms", __scrape_timeout__="10000ms", job="secure"}
            ! job "secure", target "bad/path": "bad/path" is not host:port: scheme, metrics_path and params of the job say the rest of a URL
            ! job "secure", target "": no address
            token every 60000 within 10000 of 67108864 bytes, Header { kind: "Bearer", credentials: File("/run/token") }
            ! job "token": target_limit exceeded (2 targets, limit 1)
        "#]],
    );
    check("", expect![]);
}

#[test]
fn what_is_refused() {
    let of = |text: &str| format!("scrape_configs:\n  - {{job_name: a, {text}}}\n");
    check(
        &of("scrape_interval: 5s, scrape_timeout: 6s"),
        expect![[r#"scrape.yml: 2:5: job "a": scrape timeout greater than scrape interval"#]],
    );
    check(
        &of("scheme: ftp"),
        expect![[r#"scrape.yml: 2:5: job "a": scheme "ftp" is neither http nor https"#]],
    );
    check(
        &of("honour_labels: true"),
        expect![
            "scrape.yml: 2:19: unknown field `honour_labels`, expected one of job_name, scrape_interval, scrape_timeout, metrics_path, scheme, params, honor_labels, honor_timestamps, sample_limit, label_limit, label_name_length_limit, label_value_length_limit, target_limit, body_size_limit, enable_compression, follow_redirects, basic_auth, authorization, tls_config, static_configs, file_sd_configs, relabel_configs, metric_relabel_configs"
        ],
    );
    check(
        &of("static_configs: [{targets: ['b:1', 'http://127.0.0.1:9100/metrics']}]"),
        expect![[
            r#"scrape.yml: 2:5: job "a": target "http://127.0.0.1:9100/metrics" is not host:port: scheme, metrics_path and params of the job say the rest of a URL"#
        ]],
    );
    check(
        &of(
            "static_configs: [{targets: ['b:1']}], relabel_configs: [{target_label: __scrape_interval__, replacement: 300y}]",
        ),
        expect![[r#"
            a every 60000 within 10000 of 67108864 bytes, None
            ! job "a", target "b:1": __scrape_interval__ is not a duration: "300y"
        "#]],
    );
    check(
        &of("body_size_limit: large"),
        expect![[
            r#"scrape.yml: 2:5: job "a": body_size_limit: `large` is not a size such as 512kB, 16MB or 20GB"#
        ]],
    );
    check(
        &of("basic_auth: {username: a}, authorization: {}"),
        expect![[
            r#"scrape.yml: 2:5: job "a": at most one of basic_auth & authorization must be configured"#
        ]],
    );
    check(
        &of("authorization: {credentials: a, credentials_file: b}"),
        expect![[
            r#"scrape.yml: 2:5: job "a": at most one of credentials & credentials_file must be configured"#
        ]],
    );
    check(
        &of("authorization: {type: Basic}"),
        expect![[
            r#"scrape.yml: 2:5: job "a": authorization type cannot be set to "basic": use basic_auth"#
        ]],
    );
    check(
        &of("relabel_configs: [{action: hashmod, target_label: a}]"),
        expect![[
            r#"scrape.yml: 2:5: job "a": relabel configuration for hashmod requires non-zero modulus"#
        ]],
    );
}

#[test]
fn jobs_need_names_of_their_own() {
    check(
        "scrape_configs:\n  - job_name: a\n  - job_name: a\n",
        expect![[r#"scrape.yml: 3:5: job_name "a" is used by another job too"#]],
    );
    check("scrape_configs:\n  - job_name: ''\n", expect!["scrape.yml: 2:5: job_name is empty"]);
    check(
        "scrape_configs:\n  - scheme: http\n",
        expect!["scrape.yml: 2:5: missing field `job_name`"],
    );
}

#[test]
fn lists_of_targets_are_json_or_yaml() {
    let json = r#"[{"targets": ["a:1"], "labels": {"env": "x"}}]"#;
    let yaml = "- targets: ['a:1']\n  labels: {env: x}\n";
    assert_eq!(parse_groups("f", json), parse_groups("f", yaml));
    assert_eq!(parse_groups("f", json).expect("JSON")[0].targets, ["a:1"]);
    let error = parse_groups("f.json", "[{\"target\": []}]").expect_err("no such key");
    expect!["f.json: 1:3: unknown field `target`, expected one of targets, labels"]
        .assert_eq(&error.to_string());
}

#[test]
fn a_secret_is_not_shown() {
    let text = "scrape_configs: [{job_name: a, basic_auth: {username: u, password: hunter2}}]";
    let shown = format!("{:?}", parse("f", text, ScrapeDefaults::default()).expect("a job"));
    assert!(!shown.contains("hunter2"), "{shown}");
}
