//! `egret branch pool …` against a running Egret, its crash and its stop.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};

/// Exit code and standard error of a command that is refused.
fn refused(place: &Place, arguments: &[&str]) -> (i32, String) {
    let output = place.run(arguments);
    (output.status.code().unwrap(), text(&output.stderr))
}

/// The pool of preset `small` once all are full.
fn filled(place: &Place) -> Value {
    place.json(&["branch", "pool", "status", "--filled"])["items"][0].clone()
}

fn sizes(pool: &Value) -> (u64, u64, bool) {
    let number = |name: &str| pool[name].as_u64().unwrap();
    (number("target"), number("hot"), pool["chosen"] == true)
}

#[test]
fn pools_are_shown_resized_and_remembered() {
    let place = Place::new("pools");
    let server = place.start(&["serve"]);
    let output = place.run(&["branch", "pool", "status", "--filled"]);
    assert_eq!(
        text(&output.stdout),
        "PRESET  TARGET         HOT  FILLING  TEMPLATE\n\
         small   2 (by demand)  0    0        none yet\n\
         medium  0 (by demand)  0    0        none yet\n\
         large   0 (by demand)  0    0        none yet\n"
    );
    let resized = place.json(&["branch", "pool", "resize", "small", "3"]);
    assert_eq!(
        (&resized["items"][0]["target"], &resized["items"][0]["chosen"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(sizes(&filled(&place)), (3, 3, true));
    let output = place.run(&["branch", "pool", "status"]);
    let table = text(&output.stdout);
    let template = filled(&place)["template"].as_str().unwrap().to_owned();
    let line = format!("small   3              3    0        {template}\n");
    assert!(table.contains(&line), "{table}");

    let output = place.run(&["branch", "create", "one"]);
    let told = text(&output.stdout);
    assert!(
        told.contains("branch one is running, created in ") && told.contains(" ms (lease "),
        "{told}"
    );
    let shown = place.json(&["branch", "show", "one"]);
    assert_eq!(shown["receipt"]["kind"], "pooled");

    // A crash and a stop: the choice stays, and what was in the pool does not.
    server.kill();
    let server = place.start(&["serve"]);
    assert_eq!(sizes(&filled(&place)), (3, 3, true));
    let url = place.connection_string("one", "postgres");
    assert_eq!(place.psql(&url, "SELECT 6 * 7").unwrap(), "42");
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
    let server = place.start(&["serve"]);
    assert_eq!(sizes(&filled(&place)), (3, 3, true));
    assert_eq!(place.psql(&url, "SELECT 6 * 7").unwrap(), "42");
    place.json(&["branch", "pool", "resize", "small", "0"]);
    assert_eq!(sizes(&filled(&place)), (0, 0, true));
    let pools = place.json(&["branch", "pool", "resize", "small", "demand"]);
    assert_eq!(pools["items"][0]["chosen"], false);
    let (target, hot, _) = sizes(&filled(&place));
    assert!(target >= 2 && hot == target, "{target} {hot}");
    assert_eq!(place.json(&["branch", "verify"])["consistent"], true);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn what_is_no_pool_or_size_is_refused() {
    let place = Place::new("no-pools");
    let server = place.start(&["serve"]);
    for (preset, size, code, says) in [
        ("small", "lots", 2, "`lots` is neither a number of branches nor `demand`"),
        ("small", "201", 1, "limit branches.pool_max is 200, but 201 is needed"),
        ("twin", "1", 1, "branches of preset twin are not pooled"),
        ("tiny", "1", 1, "unknown variant `tiny`, expected one of `small`, `medium`"),
    ] {
        let (found, said) = refused(&place, &["branch", "pool", "resize", preset, size]);
        assert!(found == code && said.contains(says), "{found}: {said}");
    }
    let (code, said) = refused(&place, &["branch", "pool", "resize", "small"]);
    assert!(code == 2 && said.contains("<SIZE>"), "{said}");
    server.stop(Signal::TERM);
}
