//! `egret bench queue` and `egret bench log`: every scenario at small size, with an Egret of its
//! own and against a running one. What is measured is checked, not how fast it is.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::place::{Place, text};

const SMALL: &str = "--seconds 1 --warmup-max 500ms";

fn measured(place: &Place, line: &str) -> Value {
    let words = format!("bench {line} --out result.json");
    let output = place.run(&words.split_whitespace().collect::<Vec<_>>());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    serde_json::from_slice(&fs::read(place.directory.join("result.json")).unwrap()).unwrap()
}

fn value(result: &Value, name: &str) -> f64 {
    let value = result["metrics"][name]["value"].as_f64();
    value.unwrap_or_else(|| panic!("{name} in {}", result["metrics"]))
}

/// Every task was done, once; and there were some.
fn check(result: &Value) {
    assert_eq!(value(result, "lost"), 0.0);
    assert_eq!(value(result, "duplicated"), 0.0);
    assert_eq!(result["errors"], serde_json::json!({}));
    assert!(value(result, "cycles_per_second") > 10.0);
    for name in ["enqueue", "end_to_end", "claim_to_complete"] {
        let samples = result["metrics"][name]["samples"].as_u64().unwrap();
        assert!(samples > 10, "{name}: {samples}");
    }
    for name in ["server_cpu_us_per_cycle", "rss_bytes", "disk_bytes"] {
        assert!(value(result, name) > 0.0, "{name}");
    }
}

#[test]
fn cycles_are_measured_and_every_task_is_accounted_for() {
    let place = Place::new("bench-queue");
    let closed =
        measured(&place, &format!("queue --private {SMALL} --partitions 2 --durability none"));
    check(&closed);
    assert_eq!(closed["parameters"]["partitions"], 2);
    check(&measured(&place, &format!("queue --private {SMALL} --batch 64")));
    let open = measured(&place, &format!("queue --private {SMALL} --rate 300"));
    check(&open);
    // The schedule says how many begin, whatever becomes of them.
    let begun = open["metrics"]["end_to_end"]["samples"].as_u64().unwrap();
    assert!((200..400).contains(&begun), "{begun}");
    let counted =
        measured(&place, "queue --private --warmup-max 500ms --cycles 5000 --payload-bytes 300");
    check(&counted);
    let cycles = counted["metrics"]["cycles_per_second"]["samples"].as_u64();
    assert!(cycles.unwrap() >= 5_000);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn every_other_scenario_is_measured() {
    let place = Place::new("bench-backlog");
    let backlog =
        measured(&place, &format!("queue --private {SMALL} --scenario backlog --backlog 20000"));
    check(&backlog);
    assert_eq!(value(&backlog, "backlog_lost"), 0.0);
    for name in ["restart", "backlog_ratio", "backlog_rss_bytes", "empty_cycles_per_second"] {
        assert!(value(&backlog, name) > 0.0, "{name}");
    }
    let expiry = measured(
        &place,
        &format!("queue --private {SMALL} --scenario lease-expiry --leases 3000 --rate 200"),
    );
    check(&expiry);
    assert_eq!(value(&expiry, "leases_lost"), 0.0);
    assert!(value(&expiry, "all_back") >= 0.0);
    let rest = measured(&place, "queue --private --seconds 1 --scenario rest --connections 8");
    check(&rest);
    assert!(value(&rest, "enqueues_per_second") > 10.0);
    let tenants =
        measured(&place, &format!("queue --private {SMALL} --scenario tenants --rate 200"));
    check(&tenants);
    for name in ["beside_p50_ratio", "flood_cycles_per_second"] {
        assert!(value(&tenants, name) > 0.0, "{name}");
    }
    let sweep = measured(&place, &format!("queue --private {SMALL} --scenario sweep"));
    check(&sweep);
    assert_eq!(value(&sweep, "partitions_1_ratio"), 1.0);
    assert!(value(&sweep, "partitions_4_cycles_per_second") > 10.0);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_running_egret_keeps_no_queue_of_a_measurement() {
    let place = Place::new("bench-queue-server");
    let server = place.start(&["serve"]);
    let address = format!("--server http://127.0.0.1:{}", place.ports[0]);
    check(&measured(&place, &format!("queue {SMALL} --repeat 2 {address}")));
    let words = format!("bench queue {SMALL} --durability none {address}");
    let output = place.run(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("need --private"));
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn the_log_is_measured_beside_the_bare_disk() {
    let place = Place::new("bench-log");
    let log = measured(&place, "log --seconds 1 --directory .");
    for arm in ["bare", "uncoalesced", "one_appender", "in_flight_64", "in_flight_512"] {
        assert!(log["metrics"][arm]["samples"].as_u64().unwrap() > 5, "{arm}");
        assert!(value(&log, &format!("{arm}_per_second")) > 0.0, "{arm}");
    }
    assert!(value(&log, "in_flight_64_p99_in_syncs") > 0.0);
    let left: Vec<_> = fs::read_dir(&place.directory)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("egret-bench-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let refused = place.run(&["bench", "log", "--private"]);
    assert_eq!(refused.status.code(), Some(2));
}
