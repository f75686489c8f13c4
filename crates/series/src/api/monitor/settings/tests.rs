//! What settings are refused, and what is shown of those in force.

use expect_test::expect;

use super::*;
use crate::core::scrape::parse;

fn parse_settings(change: impl FnOnce(&mut SeriesConfig)) -> Result<MonitorSettings, String> {
    let mut config = SeriesConfig::default();
    change(&mut config);
    let configured = MonitorSettings::new(&config, "http://127.0.0.1:7070/prometheus");
    configured.map_err(|error| error.to_string())
}

fn expect_rejection(change: impl FnOnce(&mut SeriesConfig)) -> String {
    parse_settings(change).err().expect("a refusal")
}

#[test]
fn what_cannot_be_is_refused_with_its_setting() {
    let labels = |text: &str| expect_rejection(|config| config.external_labels = text.to_owned());
    assert_eq!(labels("a=b, c"), "series.external_labels: \"c\" is not name=value");
    assert_eq!(
        labels("__a=b"),
        "series.external_labels: \"__a=b\" is not allowed: names are not empty and do not begin with __, values are not empty"
    );
    assert_eq!(labels("a=b,a=c"), "series.external_labels: \"a\" occurs twice");
    let webhook =
        expect_rejection(|config| config.alert_webhooks = "http://a/; file:///b".to_owned());
    assert_eq!(
        webhook,
        "series.alert_webhooks: address 2 begins neither with http:// nor with https://"
    );
    let manager = expect_rejection(|config| config.alertmanagers = "here".to_owned());
    assert_eq!(
        manager,
        "series.alertmanagers: address 1 is not a URL: write it as http://host:port/path"
    );
    let interval = expect_rejection(|config| config.scrape_interval.0 = 0);
    assert_eq!(interval, "series.scrape_interval: 0 is not allowed: use a duration such as 15s");
    let resend = expect_rejection(|config| config.alert_resend.0 = u64::MAX / 2_000);
    assert_eq!(resend, "series.alert_resend: 9223372036854775 ms is too long");
    let external = |url: &str| expect_rejection(|config| config.external_url = url.to_owned());
    assert_eq!(
        external("egret.example.org/prometheus"),
        "series.external_url: `egret.example.org/prometheus` is not a URL: write it as \
         http://host:port/path"
    );
    assert_eq!(
        external("ftp://egret.example.org"),
        "series.external_url: `ftp://egret.example.org` begins neither with http:// nor with https://"
    );
    let external = parse_settings(|config| config.external_url = "https://e.example/p/".to_owned());
    assert_eq!(&*external.expect("a URL").external_url, "https://e.example/p");
}

#[test]
fn what_is_in_force_is_shown_without_secrets() {
    let configured = parse_settings(|config| {
        config.rule_files = "/etc/rules/*.yml; more.yml".to_owned();
        config.external_labels = "cluster=a, b=\"c d\"".to_owned();
        config.alertmanagers = "http://127.0.0.1:9093/".to_owned();
    })
    .expect("settings");
    let text = "scrape_configs:\n- job_name: j\n  honor_timestamps: false\n  basic_auth: {username: u, password: p}\n  \
        static_configs: [{targets: ['a:1']}]\n  relabel_configs: [{regex: x, action: labeldrop}]\n";
    let jobs = parse("f", text, configured.defaults).expect("a job");
    expect![[r#"
        global:
          scrape_interval: 15s
          scrape_timeout: 10s
          evaluation_interval: 1m
          external_labels:
            b: c d
            cluster: a
        alerting:
          alertmanagers:
          - static_configs:
            - targets:
              - http://127.0.0.1:9093
        rule_files:
        - /etc/rules/*.yml
        - more.yml
        scrape_configs:
        - job_name: j
          scrape_interval: 15s
          scrape_timeout: 10s
          metrics_path: /metrics
          scheme: http
          honor_labels: false
          honor_timestamps: false
          basic_auth:
            username: u
            password: <secret>
          static_configs:
          - targets:
            - a:1
          relabel_configs:
          - regex: x
            action: labeldrop
    "#]]
    .assert_eq(&EffectiveConfig::new(&configured, jobs).to_yaml());
}
