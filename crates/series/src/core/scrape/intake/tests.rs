//! Scrapes of one target, one after the other.

use egret_metrics_model::is_stale;
use expect_test::{Expect, expect};

use super::super::{ScrapeDefaults, find_targets, parse};
use super::*;

/// Scrapes of a job whose file has these lines besides its name; `!` is a scrape that fails.
fn check(job: &str, pages: &[&str], expected: Expect) {
    let text =
        format!("scrape_configs: [{{job_name: j, static_configs: [{{targets: ['a:1']}}], {job}}}]");
    let config = parse("f", &text, ScrapeDefaults::default()).expect("a job").remove(0);
    let target = find_targets(&config, config.static_groups.iter().map(|group| (None, group)))
        .active
        .remove(0);
    let mut intake = Intake::new(&target);
    let mut out = String::new();
    for (at, page) in pages.iter().enumerate() {
        let page = match page.strip_prefix('!') {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(ScrapePage {
                text: page,
                format: if page.contains("# EOF") || page.contains("# TYPE open") {
                    TextFormat::OpenMetrics
                } else {
                    TextFormat::Prometheus
                },
            }),
        };
        let taken = intake.take_page(
            &config,
            page,
            at as i64 * 1_000,
            Duration::from_millis(250),
            &mut |_| {},
        );
        out += &format!("{at}: {:?}\n", taken.error);
        out += &show(&[taken.samples, taken.report].concat());
    }
    out += "end\n";
    out += &show(&intake.end_all(pages.len() as i64 * 1_000));
    expected.assert_eq(&out);
}

fn show(samples: &[NewSample]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut report: Vec<String> = Vec::new();
    for sample in samples {
        let value =
            if is_stale(sample.value) { "ends".to_owned() } else { sample.value.to_string() };
        let metric = sample.labels.metric();
        if REPORT_METRICS.contains(&metric) {
            report.push(format!("{metric}={value}@{}", sample.time_ms))
        } else {
            lines.push(format!("  {} {value} @{}\n", sample.labels, sample.time_ms))
        }
    }
    lines.sort();
    lines.concat() + "  " + &report.join(" ") + "\n"
}

#[test]
fn series_come_and_go() {
    check(
        "honor_labels: false",
        &[
            "a 1\nb{x=\"y\"} 2\n",
            "a 3\n",
            "!connection refused",
            "a 1\nc 1 500\n",
            "a 1\n",
            "broken{\n",
        ],
        expect![[r#"
            0: None
              a{instance="a:1", job="j"} 1 @0
              b{instance="a:1", job="j", x="y"} 2 @0
              up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=2@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
            1: None
              a{instance="a:1", job="j"} 3 @1000
              b{instance="a:1", job="j", x="y"} ends @1000
              up=1@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=1@1000 scrape_samples_post_metric_relabeling=1@1000 scrape_series_added=0@1000
            2: Some("connection refused")
              a{instance="a:1", job="j"} ends @2000
              up=0@2000 scrape_duration_seconds=0.25@2000 scrape_samples_scraped=0@2000 scrape_samples_post_metric_relabeling=0@2000 scrape_series_added=0@2000
            3: None
              a{instance="a:1", job="j"} 1 @3000
              c{instance="a:1", job="j"} 1 @500
              up=1@3000 scrape_duration_seconds=0.25@3000 scrape_samples_scraped=2@3000 scrape_samples_post_metric_relabeling=2@3000 scrape_series_added=1@3000
            4: None
              a{instance="a:1", job="j"} 1 @4000
              up=1@4000 scrape_duration_seconds=0.25@4000 scrape_samples_scraped=1@4000 scrape_samples_post_metric_relabeling=1@4000 scrape_series_added=0@4000
            5: Some("line 1, byte 8: a name is expected: letters, digits and _, or anything in quotes")
              a{instance="a:1", job="j"} ends @5000
              up=0@5000 scrape_duration_seconds=0.25@5000 scrape_samples_scraped=0@5000 scrape_samples_post_metric_relabeling=0@5000 scrape_series_added=0@5000
            end
              up=ends@6000 scrape_duration_seconds=ends@6000 scrape_samples_scraped=ends@6000 scrape_samples_post_metric_relabeling=ends@6000 scrape_series_added=ends@6000
        "#]],
    );
}

#[test]
fn labels_that_are_taken() {
    let page = "m{job=\"own\",instance=\"i\",exported_job=\"e\"} 1\nn{job=\"\"} 1\n";
    check(
        "honor_labels: false",
        &[page],
        expect![[r#"
        0: None
          m{exported_exported_job="own", exported_instance="i", exported_job="e", instance="a:1", job="j"} 1 @0
          n{instance="a:1", job="j"} 1 @0
          up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=2@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
        end
          m{exported_exported_job="own", exported_instance="i", exported_job="e", instance="a:1", job="j"} ends @1000
          n{instance="a:1", job="j"} ends @1000
          up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
    "#]],
    );
    check(
        "honor_labels: true",
        &[page],
        expect![[r#"
        0: None
          m{exported_job="e", instance="i", job="own"} 1 @0
          n{instance="a:1", job="j"} 1 @0
          up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=2@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
        end
          m{exported_job="e", instance="i", job="own"} ends @1000
          n{instance="a:1", job="j"} ends @1000
          up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
    "#]],
    );
}

#[test]
fn bounds_and_quantiles_are_written_in_one_way() {
    check(
        "honor_labels: false",
        &[
            "# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_bucket{le=\"x\"} 3\n\
             # TYPE s summary\ns{quantile=\"1\",le=\"1\"} 4\n# TYPE g gauge\ng{le=\"1\"} 5\n",
            "# TYPE h histogram\nh_bucket{le=\"1.0\"} 6\n# TYPE s summary\ns{quantile=\"1e0\",le=\"1\"} 7\n",
        ],
        expect![[r#"
            0: None
              g{instance="a:1", job="j", le="1"} 5 @0
              h_bucket{instance="a:1", job="j", le="+Inf"} 2 @0
              h_bucket{instance="a:1", job="j", le="1.0"} 1 @0
              h_bucket{instance="a:1", job="j", le="x"} 3 @0
              s{instance="a:1", job="j", le="1", quantile="1.0"} 4 @0
              up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=5@0 scrape_samples_post_metric_relabeling=5@0 scrape_series_added=5@0
            1: None
              g{instance="a:1", job="j", le="1"} ends @1000
              h_bucket{instance="a:1", job="j", le="+Inf"} ends @1000
              h_bucket{instance="a:1", job="j", le="1.0"} 6 @1000
              h_bucket{instance="a:1", job="j", le="x"} ends @1000
              s{instance="a:1", job="j", le="1", quantile="1.0"} 7 @1000
              up=1@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=2@1000 scrape_samples_post_metric_relabeling=2@1000 scrape_series_added=2@1000
            end
              h_bucket{instance="a:1", job="j", le="1.0"} ends @2000
              s{instance="a:1", job="j", le="1", quantile="1.0"} ends @2000
              up=ends@2000 scrape_duration_seconds=ends@2000 scrape_samples_scraped=ends@2000 scrape_samples_post_metric_relabeling=ends@2000 scrape_series_added=ends@2000
        "#]],
    );
}

#[test]
fn samples_are_relabelled() {
    check(
        "metric_relabel_configs: [{source_labels: [__name__], regex: 'go_.*', action: drop}, \
         {regex: 'x', action: labeldrop}]",
        &["go_a 1\nb{x=\"1\"} 2\nb{x=\"2\"} 3\n", "b{x=\"1\"} 2\n", "c 1\n"],
        expect![[r#"
            0: None
              b{instance="a:1", job="j"} 2 @0
              b{instance="a:1", job="j"} 3 @0
              up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=3@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
            1: None
              b{instance="a:1", job="j"} 2 @1000
              up=1@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=1@1000 scrape_samples_post_metric_relabeling=1@1000 scrape_series_added=0@1000
            2: None
              b{instance="a:1", job="j"} ends @2000
              c{instance="a:1", job="j"} 1 @2000
              up=1@2000 scrape_duration_seconds=0.25@2000 scrape_samples_scraped=1@2000 scrape_samples_post_metric_relabeling=1@2000 scrape_series_added=1@2000
            end
              c{instance="a:1", job="j"} ends @3000
              up=ends@3000 scrape_duration_seconds=ends@3000 scrape_samples_scraped=ends@3000 scrape_samples_post_metric_relabeling=ends@3000 scrape_series_added=ends@3000
        "#]],
    );
    check(
        "metric_relabel_configs: [{regex: '__name__', action: labeldrop}]",
        &["a 1\n"],
        expect![[r#"
            0: Some("missing metric name (__name__ label)")
              up=0@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=1@0 scrape_samples_post_metric_relabeling=0@0 scrape_series_added=0@0
            end
              up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
        "#]],
    );
}

#[test]
fn times_of_the_target() {
    let page = "a 1 5000\nb 1\nc 1 900000\n";
    check(
        "honor_timestamps: true",
        &[page, "b 1\n"],
        expect![[r#"
        0: None
          a{instance="a:1", job="j"} 1 @5000
          b{instance="a:1", job="j"} 1 @0
          up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=3@0 scrape_samples_post_metric_relabeling=3@0 scrape_series_added=3@0
        1: None
          b{instance="a:1", job="j"} 1 @1000
          up=1@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=1@1000 scrape_samples_post_metric_relabeling=1@1000 scrape_series_added=0@1000
        end
          b{instance="a:1", job="j"} ends @2000
          up=ends@2000 scrape_duration_seconds=ends@2000 scrape_samples_scraped=ends@2000 scrape_samples_post_metric_relabeling=ends@2000 scrape_series_added=ends@2000
    "#]],
    );
    check(
        "honor_timestamps: false",
        &[page, "b 1\n"],
        expect![[r#"
        0: None
          a{instance="a:1", job="j"} 1 @0
          b{instance="a:1", job="j"} 1 @0
          c{instance="a:1", job="j"} 1 @0
          up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=3@0 scrape_samples_post_metric_relabeling=3@0 scrape_series_added=3@0
        1: None
          a{instance="a:1", job="j"} ends @1000
          b{instance="a:1", job="j"} 1 @1000
          c{instance="a:1", job="j"} ends @1000
          up=1@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=1@1000 scrape_samples_post_metric_relabeling=1@1000 scrape_series_added=0@1000
        end
          b{instance="a:1", job="j"} ends @2000
          up=ends@2000 scrape_duration_seconds=ends@2000 scrape_samples_scraped=ends@2000 scrape_samples_post_metric_relabeling=ends@2000 scrape_series_added=ends@2000
    "#]],
    );
}

#[test]
fn limits() {
    check(
        "sample_limit: 2",
        &["a 1\nb 1\n", "a 1\nb 1\nc 1\n", "a 1\n"],
        expect![[r#"
            0: None
              a{instance="a:1", job="j"} 1 @0
              b{instance="a:1", job="j"} 1 @0
              up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=2@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
            1: Some("sample limit exceeded (limit: 2)")
              a{instance="a:1", job="j"} ends @1000
              b{instance="a:1", job="j"} ends @1000
              up=0@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=3@1000 scrape_samples_post_metric_relabeling=3@1000 scrape_series_added=1@1000
            2: None
              a{instance="a:1", job="j"} 1 @2000
              up=1@2000 scrape_duration_seconds=0.25@2000 scrape_samples_scraped=1@2000 scrape_samples_post_metric_relabeling=1@2000 scrape_series_added=0@2000
            end
              a{instance="a:1", job="j"} ends @3000
              up=ends@3000 scrape_duration_seconds=ends@3000 scrape_samples_scraped=ends@3000 scrape_samples_post_metric_relabeling=ends@3000 scrape_series_added=ends@3000
        "#]],
    );
    check(
        "label_limit: 3",
        &["a{x=\"1\"} 1\n"],
        expect![[r#"
        0: Some("label_limit exceeded (metric: a, number of labels: 4, limit: 3)")
          up=0@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=1@0 scrape_samples_post_metric_relabeling=0@0 scrape_series_added=0@0
        end
          up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
    "#]],
    );
    check(
        "label_name_length_limit: 8",
        &["a{too_long_a_name=\"1\"} 1\n"],
        expect![[r#"
            0: Some("label_name_length_limit exceeded (metric: a, label name: too_long_a_name, length: 15, limit: 8)")
              up=0@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=1@0 scrape_samples_post_metric_relabeling=0@0 scrape_series_added=0@0
            end
              up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
        "#]],
    );
    check(
        "label_value_length_limit: 3",
        &["a{x=\"1234\"} 1\n"],
        expect![[r#"
            0: Some("label_value_length_limit exceeded (metric: a, label name: x, length: 4, limit: 3)")
              up=0@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=1@0 scrape_samples_post_metric_relabeling=0@0 scrape_series_added=0@0
            end
              up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
        "#]],
    );
    check(
        "scheme: http",
        &["a{x=\"1\",x=\"2\"} 1\n"],
        expect![[r#"
        0: Some("label name \"x\" occurs twice")
          up=0@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=1@0 scrape_samples_post_metric_relabeling=0@0 scrape_series_added=0@0
        end
          up=ends@1000 scrape_duration_seconds=ends@1000 scrape_samples_scraped=ends@1000 scrape_samples_post_metric_relabeling=ends@1000 scrape_series_added=ends@1000
    "#]],
    );
}

#[test]
fn open_metrics() {
    check(
        "scheme: http",
        &[
            "# TYPE open counter\n# UNIT open_seconds seconds\nopen_total 1 0.5 # {id=\"x\"} 1\nopen_created 5\n# EOF\n",
            "# TYPE open counter\nopen_total 1\n",
        ],
        expect![[r#"
            0: None
              open_created{instance="a:1", job="j"} 5 @0
              open_total{instance="a:1", job="j"} 1 @500
              up=1@0 scrape_duration_seconds=0.25@0 scrape_samples_scraped=2@0 scrape_samples_post_metric_relabeling=2@0 scrape_series_added=2@0
            1: Some("data does not end with # EOF")
              open_created{instance="a:1", job="j"} ends @1000
              up=0@1000 scrape_duration_seconds=0.25@1000 scrape_samples_scraped=1@1000 scrape_samples_post_metric_relabeling=1@1000 scrape_series_added=0@1000
            end
              up=ends@2000 scrape_duration_seconds=ends@2000 scrape_samples_scraped=ends@2000 scrape_samples_post_metric_relabeling=ends@2000 scrape_series_added=ends@2000
        "#]],
    );
}

#[test]
fn nothing_known_is_kept_of_what_is_gone() {
    let config = parse(
        "f",
        "scrape_configs: [{job_name: j, static_configs: [{targets: [a]}]}]",
        ScrapeDefaults::default(),
    )
    .expect("a job")
    .remove(0);
    let target = find_targets(&config, config.static_groups.iter().map(|group| (None, group)))
        .active
        .remove(0);
    let mut intake = Intake::new(&target);
    for round in 0..100 {
        let text = format!("m{{round=\"{round}\"}} 1\n");
        let page = ScrapePage { text: &text, format: TextFormat::Prometheus };
        intake.take_page(&config, Ok(page), round, Duration::ZERO, &mut |_| {});
    }
    assert_eq!(intake.series.len(), 1);
    for round in 0..100 {
        let text = format!("m{{fails=\"{round}\"}} 1\nbad\n");
        let page = ScrapePage { text: &text, format: TextFormat::Prometheus };
        intake.take_page(&config, Ok(page), 1_000 + round, Duration::ZERO, &mut |_| {});
    }
    assert!(intake.series.len() <= 2);
}
