//! `egret bench branches`, with an Egret of its own and against a running one, which is left as it
//! was.

use std::fs;

use egret_base_test::eventually_blocking;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};

const SMALL: &str = "--branches 3 --bursts 2 --source-size 20MB";

fn measured(place: &Place, line: &str) -> Value {
    let words = format!("bench branches {SMALL} --out result.json {line}");
    let output = place.run(&words.split_whitespace().collect::<Vec<_>>());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{line}: {out}{err}");
    serde_json::from_slice(&fs::read(place.directory.join("result.json")).unwrap()).unwrap()
}

fn check(result: &Value, users: u64) {
    let metrics = &result["metrics"];
    assert_eq!(metrics["success"]["value"], 1.0, "{:?}", result["errors"]);
    assert_eq!(metrics["success"]["samples"], users);
    for name in ["deadlocks", "source_mutations"] {
        assert_eq!(metrics[name]["value"], 0.0, "{name}");
    }
    let settings = &result["environment"]["postgres_settings"];
    assert_eq!(settings["branch.fsync"], "off", "{settings}");
    assert!(settings["branch.shared_buffers"].is_string(), "{settings}");
    let processors = metrics["burst_cpu_ms_per_branch"]["value"].as_f64().unwrap();
    assert!(processors > 0.0);
}

#[test]
fn a_burst_is_measured_in_every_mode() {
    let place = Place::new("bench-branches");
    let event = measured(&place, "--private --mode event --proxy --arms 2 --explain");
    check(&event, 12);
    for (name, samples) in [
        ("create", 6),
        ("first_query", 6),
        ("second_query", 6),
        ("first_query_proxy", 6),
        ("write", 6),
        ("write_server", 6),
        ("destroy", 6),
        ("wall", 2),
        ("refill", 2),
        ("cold_create", 2),
        ("template_database", 1),
    ] {
        assert_eq!(event["metrics"][name]["samples"], samples, "{name}");
    }
    let plans = place.directory.join(event["attachments"]["explain"].as_str().unwrap());
    let plans: Value = serde_json::from_slice(&fs::read(plans).unwrap()).unwrap();
    let insert = plans.as_array().unwrap().last().unwrap();
    assert!(insert["statement"].as_str().unwrap().starts_with("INSERT INTO event"));
    let ddl = measured(&place, "--private --mode ddl");
    check(&ddl, 6);
    let read = measured(&place, "--private --mode read --pool 1");
    check(&read, 6);
    assert!(read["metrics"].get("write").is_none());
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn a_running_egret_is_left_as_it_was() {
    let place = Place::new("bench-server");
    let server = place.start(&["serve"]);
    place.json(&["branch", "pool", "resize", "small", "1"]);
    place.json(&["branch", "create", "bench-prod"]);
    let before =
        place.json(&["branch", "pool", "status", "--filled"])["items"][0]["template"].clone();
    let address = format!("--server http://127.0.0.1:{}", place.ports[0]);
    let unchanged = || {
        let branches = place.json(&["branch", "list"]);
        let names: Vec<&Value> =
            branches["items"].as_array().unwrap().iter().map(|branch| &branch["name"]).collect();
        assert_eq!(names, [&json!("bench-prod")]);
        let pool = place.json(&["branch", "pool", "status", "--filled"])["items"][0].clone();
        assert_eq!((&pool["target"], &pool["chosen"]), (&json!(1), &json!(true)));
        // A newer one, in which nothing of the measurement is.
        assert_ne!(pool["template"], before);
        place.json(&["branch", "create", "look"]);
        let url = place.connection_string("look", "postgres");
        let databases = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database";
        assert_eq!(place.psql(&url, databases).unwrap(), "postgres template0 template1");
        place.json(&["branch", "destroy", "look"]);
    };
    check(&measured(&place, &address), 6);
    unchanged();

    let line = format!("bench branches --branches 3 --bursts 1000 --source-size 20MB {address}");
    let destroyed = || place.log().matches("method=\"DELETE\"").count();
    let before = destroyed();
    let mut bench = place.spawn(&line.split_whitespace().collect::<Vec<_>>());
    // Until users are at work, in the second burst at least.
    eventually_blocking("five branches are destroyed", || {
        assert!(bench.is_running());
        destroyed() >= before + 5
    });
    assert_eq!(bench.interrupt(), Some(1));
    unchanged();
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}
