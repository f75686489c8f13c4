//! Right answers are taken, wrong ones are told.

use serde_json::{Value, json};

use super::super::fleet::Fleet;
use super::*;

const ACKNOWLEDGED: u64 = 600;

fn catalog() -> Catalog {
    Catalog::new(Fleet { seed: 5, series: 3_000, begin_ms: 1_795_000_020_000 })
}

/// The answer that a server gives to a query, by what the fleet says.
fn answer_json(query: &SeriesQuery, catalog: &Catalog) -> Value {
    let element = |(labels, points): (Labels, Vec<(i64, f64)>)| {
        let points: Vec<Value> = points
            .into_iter()
            .map(|(at, value)| json!([at as f64 / 1_000.0, value.to_string()]))
            .collect();
        match points.len() {
            1 => json!({"metric": labels, "value": points[0]}),
            _ => json!({"metric": labels, "values": points}),
        }
    };
    let result: Vec<Value> = query.expected_series(catalog).into_iter().map(element).collect();
    json!({"status": "success", "data": {"resultType": "any", "result": result}})
}

/// What is wrong with the answer to a panel after `change`.
fn check_changed(change: impl FnOnce(&mut Value)) -> String {
    let catalog = catalog();
    let panel =
        super::super::kinds::KINDS.iter().position(|kind| kind.name == "panel_memory_by_pod");
    let query = SeriesQuery::of_kind(catalog.fleet(), panel.unwrap(), 4, ACKNOWLEDGED).unwrap();
    let mut answer = answer_json(&query, &catalog);
    change(&mut answer);
    let body = serde_json::to_vec(&answer).unwrap();
    match check_answer(&query, &catalog, Vendor::Egret, &body) {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

fn first(answer: &mut Value) -> &mut Value {
    &mut answer["data"]["result"][0]
}

#[test]
fn right_answers_of_all_kinds_are_taken() {
    let catalog = catalog();
    for number in 0..200 {
        let query = SeriesQuery::choose(catalog.fleet(), number, ACKNOWLEDGED).unwrap();
        let answer = answer_json(&query, &catalog);
        let body = serde_json::to_vec(&answer).unwrap();
        check_answer(&query, &catalog, Vendor::Egret, &body).unwrap();
        assert_eq!(count_series(&body), answer["data"]["result"].as_array().unwrap().len());
    }
}

#[test]
fn a_value_may_differ_by_a_millionth() {
    let nudge = |by: f64| {
        move |answer: &mut Value| {
            let value = &mut first(answer)["values"][3][1];
            let number: f64 = value.as_str().unwrap().parse().unwrap();
            *value = (number * by).to_string().into();
        }
    };
    assert_eq!(check_changed(nudge(1.000_000_5)), "");
    assert!(check_changed(nudge(1.000_01)).contains(" and should be "));
}

#[test]
fn what_is_missing_or_too_much_is_wrong() {
    let result = |answer: &mut Value| answer["data"]["result"].as_array_mut().unwrap().clone();
    let missing = check_changed(|answer| {
        let all = result(answer);
        answer["data"]["result"] = all[1..].into();
    });
    assert!(missing.ends_with("is missing"), "{missing}");
    let more = check_changed(|answer| {
        let mut all = result(answer);
        let mut other = all[0].clone();
        other["metric"]["pod"] = "another".into();
        all.push(other);
        answer["data"]["result"] = all.into();
    });
    assert!(more.ends_with("is unexpected"), "{more}");
    let twice = check_changed(|answer| {
        let all = result(answer);
        answer["data"]["result"] = [&all[..], &all[..1]].concat().into();
    });
    assert_eq!(twice, "a series occurs twice");
    let gap = check_changed(|answer| {
        first(answer)["values"].as_array_mut().unwrap().remove(5);
    });
    assert!(gap.contains("has no value at"), "{gap}");
    let failed = check_changed(|answer| answer["status"] = "error".into());
    assert_eq!(failed, "its status is error");
}
