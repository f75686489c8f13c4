//! Filtering and paging of rules.

use egret_promql::parse_selector;

use super::super::{GroupStart, RuleGroup, parse};
use super::*;

const FILE: &str = "
groups:
- name: a
  rules:
  - {record: one, expr: up, labels: {team: x}}
  - {alert: Two, expr: up == 0, labels: {team: y}}
- name: b
  rules:
  - {record: three, expr: up}
- name: c
  rules:
  - {alert: Four, expr: up == 0}
";

fn status() -> RulesStatus {
    let groups = parse("f", FILE)
        .expect("a good file")
        .into_iter()
        .map(|spec| RuleGroup::new(spec, 60_000, GroupStart::Fresh).status());
    RulesStatus { groups: groups.collect(), group_next_token: None }
}

/// The names of what is selected, and where to go on.
fn select(filter: &RuleFilter) -> Option<(String, Option<String>)> {
    let selected = status().select(filter)?;
    let groups = selected
        .groups
        .iter()
        .map(|group| {
            let names = group.rules.iter().map(|rule| match rule {
                RuleStatus::Alerting { name, .. } | RuleStatus::Recording { name, .. } => {
                    name.as_str()
                }
            });
            format!("{}({})", group.name, names.collect::<Vec<_>>().join(" "))
        })
        .collect::<Vec<_>>()
        .join(" ");
    Some((groups, selected.group_next_token))
}

fn names(filter: RuleFilter) -> String {
    select(&filter).expect("there is nowhere to go on").0
}

#[test]
fn rules_are_selected() {
    let all = || RuleFilter::default();
    assert_eq!(names(all()), "a(one Two) b(three) c(Four)");
    let kind = Some(RuleType::Alert);
    assert_eq!(names(RuleFilter { kind, ..all() }), "a(Two) c(Four)");
    let groups = vec!["b".to_owned(), "c".to_owned()];
    assert_eq!(names(RuleFilter { groups, ..all() }), "b(three) c(Four)");
    let files = vec!["g".to_owned()];
    assert_eq!(names(RuleFilter { files, ..all() }), "");
    let named = vec!["one".to_owned(), "Four".to_owned()];
    let named = RuleFilter { names: named, ..all() };
    assert_eq!(names(named), "a(one) c(Four)");
    let selectors = vec![parse_selector("{team=~\"x|z\"}").expect("a selector")];
    assert_eq!(names(RuleFilter { selectors, ..all() }), "a(one)");
}

#[test]
fn groups_come_page_by_page() {
    let mut filter =
        RuleFilter { kind: Some(RuleType::Alert), groups_max: Some(1), ..RuleFilter::default() };
    let (first, next) = select(&filter).expect("the first page");
    assert_eq!(first, "a(Two)");
    filter.next = next;
    assert!(filter.next.is_some());
    let last = select(&filter).expect("the second page");
    assert_eq!(last, ("c(Four)".to_owned(), None));
    filter.next = Some("gone".to_owned());
    assert_eq!(select(&filter), None);
}

#[test]
fn alerts_may_be_left_out() {
    let filter = RuleFilter { excludes_alerts: true, ..RuleFilter::default() };
    let selected = status().select(&filter).expect("all of them");
    let json = serde_json::to_value(&selected).expect("JSON");
    assert_eq!(json["groups"][0]["rules"][1]["alerts"], serde_json::Value::Null);
    let json = serde_json::to_value(status()).expect("JSON");
    assert_eq!(json["groups"][0]["rules"][1]["alerts"], serde_json::json!([]));
}
