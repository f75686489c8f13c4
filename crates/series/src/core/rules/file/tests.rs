//! Files as people write them, and what they are told when something is wrong.

use expect_test::{Expect, expect};

use super::*;

fn check(text: &str, expected: Expect) {
    let shown = match parse("rules.yml", text) {
        Ok(groups) => groups.iter().map(show).collect::<String>(),
        Err(errors) => errors.iter().map(|error| format!("{error}\n")).collect(),
    };
    expected.assert_eq(&shown);
}

fn show(group: &GroupSpec) -> String {
    let mut out = format!(
        "{} every {:?} offset {} limit {}\n",
        group.name, group.interval_ms, group.query_offset_ms, group.limit
    );
    for rule in &group.rules {
        let kind = match &rule.kind {
            RuleKind::Recording { labels } => format!("{labels:?}"),
            RuleKind::Alerting(alert) => {
                let texts = |texts: &[(Box<str>, TemplateText)]| {
                    let pairs = texts.iter().map(|(name, text)| format!("{name}={}", text.source));
                    pairs.collect::<Vec<_>>().join(", ")
                };
                format!(
                    "for {} keep {} labels [{}] annotations [{}]",
                    alert.hold_ms,
                    alert.keep_firing_for_ms,
                    texts(&alert.labels),
                    texts(&alert.annotations)
                )
            }
        };
        out += &format!("  {}: {} {kind}\n", rule.name, rule.query.text());
    }
    out
}

#[test]
fn a_file() {
    check(
        r#"
groups:
  - name: recorded
    interval: 30s
    query_offset: 1m
    limit: 10
    labels: {team: a, tier: "1"}
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
        labels:
          tier: 2
  - name: alerts
    rules:
      - alert: Down
        expr: |
          up == 0
        for: 5m
        keep_firing_for: 1h30m
        labels: {severity: page}
        annotations:
          summary: "{{ $labels.instance }} is down"
      - alert: Always
        expr: vector(1)
"#,
        expect![[r#"
            recorded every Some(30000) offset 60000 limit 10
              job:up:sum: sum by (job) (up) [("team", "a"), ("tier", "2")]
            alerts every None offset 0 limit 0
              Down: up == 0
             for 300000 keep 5400000 labels [severity=page] annotations [summary={{ $labels.instance }} is down]
              Always: vector(1) for 0 keep 0 labels [] annotations []
        "#]],
    );
    check("", expect![]);
    check("groups:\n", expect![]);
}

#[test]
fn what_is_wrong_has_a_place() {
    check(
        r#"groups:
  - name: a
    rules:
      - record: x
        alert: y
        expr: up
      - expr: up
      - record: x
      - record: x
        expr: sum(
      - record: x{a="b"}
        expr: up
        for: 5m
        annotations: {a: b}
      - alert: y
        expr: up
        labels: {__name__: x}
        annotations:
          summary: "{{ $lables.x }}"
          other: "{{ if }}"
  - name: a
    limit: -1
  - name: ""
"#,
        expect![[r#"
            rules.yml: 4:17: group "a", rule 1, "x": only one of 'record' and 'alert' must be set
            rules.yml: 7:9: group "a", rule 2, "": one of 'record' or 'alert' must be set
            rules.yml: 8:9: group "a", rule 3, "x": field 'expr' must be set in rule
            rules.yml: 10:15: group "a", rule 4, "x": could not parse expression: 1:5: parse error: unclosed left parenthesis
            rules.yml: 11:9: group "a", rule 5, "x{a=\"b\"}": invalid field 'annotations' in recording rule
            rules.yml: 11:9: group "a", rule 5, "x{a=\"b\"}": invalid field 'for' in recording rule
            rules.yml: 11:17: group "a", rule 5, "x{a=\"b\"}": braces present in the recording rule name; should it be in expr?: x{a="b"}
            rules.yml: 17:17: group "a", rule 6, "y": invalid label name: "__name__"
            rules.yml: 19:11: group "a", rule 6, "y": annotation "other": template line 1: a value is expected
            rules.yml: 19:11: group "a", rule 6, "y": annotation "summary": template line 1: undefined variable "$lables"
            rules.yml: 21:11: groupname: "a" is repeated in the same file
            rules.yml: 21:11: group "a", limit is negative: 0 means none
            rules.yml: 23:11: Groupname must not be empty
        "#]],
    );
}

#[test]
fn what_cannot_be_read_has_a_place() {
    check(
        "groups:\n  - name: a\n    rulez: []\n",
        expect![[r#"
        rules.yml: 3:5: unknown field `rulez`, expected one of name, interval, query_offset, limit, labels, rules
    "#]],
    );
    check(
        "groups:\n  - name: a\n    rules:\n      - alert: x\n        exp: up\n",
        expect![[r#"
        rules.yml: 5:9: unknown field `exp`, expected one of record, alert, expr, for, keep_firing_for, labels, annotations
    "#]],
    );
    check(
        "groups:\n  - name: a\n    interval: 5\n",
        expect![[r#"
        rules.yml: 3:15: not a valid duration string: "5", write 1h30m
    "#]],
    );
    check(
        "groups:\n  - name: a\n    rules:\n      - alert: x\n        expr: up\n        for: fast\n",
        expect![[r#"
        rules.yml: 6:14: not a valid duration string: "fast", write 1h30m
    "#]],
    );
    check(
        "groups:\n  - rules: []\n",
        expect![[r#"
        rules.yml: 2:5: missing field `name`
    "#]],
    );
    check(
        "groups: 5\n",
        expect![[r#"
        rules.yml: 1:9: expected sequence start
    "#]],
    );
    check(
        "groups: [\n",
        expect![[r#"
        rules.yml: 1:9: unclosed bracket '['
    "#]],
    );
}
