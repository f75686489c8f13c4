//! `egret bench views`, small, with an Egret of its own and against a running one. What is measured
//! is checked, not how fast it is.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};

fn measured(place: &Place, line: &str) -> Value {
    let words = format!("bench views --rows 400 --cycles 2 {line} --out result.json");
    let output = place.run(&words.split_whitespace().collect::<Vec<_>>());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    serde_json::from_slice(&fs::read(place.directory.join("result.json")).unwrap()).unwrap()
}

fn value(result: &Value, name: &str) -> f64 {
    let value = result["metrics"][name]["value"].as_f64();
    value.unwrap_or_else(|| panic!("{name} in {}", result["metrics"]))
}

/// Every view was what its query gives, and nothing failed.
fn check(result: &Value, compared: u64) {
    assert_eq!(value(result, "wrong_rows"), 0.0, "{}", result["warnings"]);
    assert_eq!(result["metrics"]["wrong_rows"]["samples"], compared);
    assert_eq!(result["errors"], json!({}));
}

#[test]
fn every_part_is_measured() {
    let place = Place::new("bench-views");
    let line = "--private --rates 0,10 --seconds 1 --commit-rate 100";
    let result = measured(&place, line);
    // Three views of each shape at each rate, one of each width in every round, one behind commits.
    check(&result, 3 * 5 * 2 + 3 * 4 + 1);
    for shape in ["scan", "filter", "aggregate", "join", "join_aggregate"] {
        for rate in ["0", "10"] {
            for what in [
                "incremental",
                "incremental_server",
                "full",
                "full_server",
                "auto",
                "auto_server",
                "floor",
                "recompute",
            ] {
                let name = format!("{shape}.{rate}.{what}");
                assert_eq!(result["metrics"][&name]["samples"], 2, "{name}");
            }
            assert!(value(&result, &format!("{shape}.{rate}.speedup")) > 0.0);
        }
    }
    assert_eq!(result["metrics"]["noop"]["samples"], 10);
    for overhead in ["write_overhead_bulk", "write_overhead_single"] {
        let widths = ["4", "12", "24"].map(|width| value(&result, &format!("{overhead}.{width}")));
        let worst = widths.into_iter().fold(0.0, f64::max);
        assert_eq!(value(&result, overhead), worst);
    }
    let committed = result["metrics"]["lag_commits_per_second"]["samples"].as_u64();
    assert!((50..150).contains(&committed.unwrap()), "{committed:?}");
    assert_eq!(result["metrics"]["lag"]["samples"], json!(committed));
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn queries_of_tpch_are_exact() {
    let place = Place::new("bench-views-tpch");
    let line = "--private --scenario tpch --scale 0.001 --queries 1,13,16,18";
    let result = measured(&place, line);
    check(&result, 3 * 4);
    assert_eq!(value(&result, "tpch.exact"), 4.0, "{}", result["warnings"]);
    // The sixteenth reads neither orders nor their lines.
    assert_eq!(value(&result, "tpch.unchanged"), 1.0);
    assert_eq!(result["metrics"]["tpch.faster_than_full"]["samples"], 4);
    for query in ["q01", "q13", "q16", "q18"] {
        for what in ["incremental", "full", "auto", "recompute"] {
            let name = format!("tpch.{query}.{what}");
            assert_eq!(result["metrics"][&name]["samples"], 2, "{name}");
        }
        for speedup in ["speedup", "recompute_speedup"] {
            assert!(value(&result, &format!("tpch.{query}.{speedup}")) > 0.0);
        }
    }
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_query_that_is_refused_is_a_finding() {
    let place = Place::new("bench-views-refused");
    let line = "--private --scenario tpch --scale 0.001 --queries 6 --set views.views_max=1";
    let result = measured(&place, line);
    // That of mode incremental is there, and no other.
    check(&result, 1);
    for name in ["tpch.exact", "tpch.faster_than_full"] {
        assert_eq!(value(&result, name), 0.0, "{name}");
    }
    let warnings = result["warnings"].as_array().unwrap();
    let warnings: Vec<&str> = warnings.iter().filter_map(Value::as_str).collect();
    for mode in ["full", "auto"] {
        let begin = format!("tpch.q06.{mode}: create the view ");
        assert!(warnings.iter().any(|text| text.starts_with(&begin)), "{warnings:?}");
    }
}

#[test]
fn every_other_scenario_is_measured_and_leaves_nothing() {
    let place = Place::new("bench-views-scenarios");
    let server = place.start(&["serve"]);
    let address = format!("--server http://127.0.0.1:{}", place.ports[0]);
    let scenarios: [(&str, u64, &[&str]); 6] = [
        ("chain", 10, &["chain.refresh"]),
        ("fan --views 6", 6, &["fan.refresh", "fan.one"]),
        ("idle --views 5 --seconds 1", 5, &["idle.cpu", "idle.cpu_without", "idle.cpu_of_views"]),
        ("lag --seconds 1 --commit-rate 50", 2, &["lag", "lag.throughput", "lag.throughput_share"]),
        (
            "overhead",
            3 * 4,
            &["overhead.bulk_insert.24", "overhead.bulk_update", "overhead.single.4.8"],
        ),
        ("wide", 3, &["wide.1.incremental", "wide.1.floor", "wide.1.speedup"]),
    ];
    for (scenario, compared, metrics) in scenarios {
        let result = measured(&place, &format!("--scenario {scenario} {address}"));
        check(&result, compared);
        for name in metrics {
            assert!(value(&result, name) >= 0.0, "{name}");
        }
    }
    let sql = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database";
    let databases = place.psql(&place.source("postgres"), sql).unwrap();
    assert_eq!(databases, "postgres template0 template1");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_running_egret_keeps_nothing_of_it() {
    let place = Place::new("bench-views-server");
    let server = place.start(&["serve"]);
    let address = format!("--server http://127.0.0.1:{}", place.ports[0]);
    let line = format!("--rates 5 --shapes join --parts refresh --repeat 2 {address}");
    check(&measured(&place, &line), 3);
    let databases = || {
        let sql = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database";
        place.psql(&place.source("postgres"), sql).unwrap()
    };
    assert_eq!(databases(), "postgres template0 template1");
    // In a database that is there already, which a schema is made in.
    let url = place.source("postgres");
    let line = format!(
        "--rates 5 --shapes scan --parts refresh,lag --seconds 1 --commit-rate 20 {address} --url {url}"
    );
    check(&measured(&place, &line), 4);
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'egret_bench%'";
    assert_eq!(place.psql(&url, left).unwrap(), "0");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}
