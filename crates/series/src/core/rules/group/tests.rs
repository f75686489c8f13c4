//! Lives of alerts and recorded series by a simulated clock, restarts among them.

mod random;
mod restart;
mod world;

use egret_metrics_model::is_stale;
use expect_test::{Expect, expect};

use self::world::{GroupFixture, InjectedFailures, external_labels, notify_options, parse_group};
use super::super::{NotificationLog, alertmanager_body, task_body, webhook_body};
use super::*;

const MINUTE: i64 = 60_000;

const DOWN: &str = "groups: [{name: g, rules: [{alert: Down, expr: 'up == 0', for: 2m, labels: {severity: page}}]}]";
const UP: [(&str, &str); 2] = [("__name__", "up"), ("i", "a")];

/// Runs minutes of which each says the value of `up`; `x` is no sample, `R` a restart before it.
fn check(text: &str, minutes: &str, expected: Expect) {
    let mut world = GroupFixture::new(text);
    let mut out = String::new();
    for minute in minutes.chars() {
        match minute {
            'R' => {
                world.restart();
                continue;
            }
            '_' => {
                world.now += MINUTE;
                continue;
            }
            'x' => world.set(&UP, f64::from_bits(STALE_NAN_BITS)),
            digit => world.set(&UP, f64::from(digit.to_digit(10).expect("a digit"))),
        }
        out += &world.show();
        world.now += MINUTE;
    }
    expected.assert_eq(&out);
}

#[test]
fn pending_firing_resolved() {
    check(
        DOWN,
        "10000110",
        expect![[r#"
               0m inactive(0)
               1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 60
               2m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 60
               3m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 60 ! firing a 3..7
               4m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 60
               5m inactive(0) ! resolved a 3..5
               6m inactive(0)
               7m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 420
        "#]],
    );
}

#[test]
fn a_pending_alert_that_ends_is_forgotten() {
    check(
        DOWN,
        "0101",
        expect![[r#"
               0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               1m inactive(0)
               2m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 120
               3m inactive(0)
        "#]],
    );
}

#[test]
fn keep_firing_for() {
    let text = DOWN.replace("for: 2m", "keep_firing_for: 2m");
    check(
        &text,
        "0110111",
        expect![[r#"
               0m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 0..4
               1m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 0..6
               3m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               4m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 0..8
               5m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               6m inactive(0) ! resolved a 0..6
        "#]],
    );
}

#[test]
fn a_restart_while_firing_is_not_seen() {
    check(
        DOWN,
        "0000R000",
        expect![[r#"
            0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 2..6
            3m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            4m pending(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            5m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            6m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 2..10
        "#]],
    );
}

#[test]
fn a_restart_while_pending_goes_on_with_the_time_that_is_left() {
    let text = DOWN.replace("for: 2m", "for: 20m");
    check(
        &text,
        "000000R__000",
        expect![[r#"
            0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            2m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            3m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            4m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            5m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            8m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            9m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
            10m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 240
        "#]],
    );
    let text = DOWN.replace("for: 2m", "for: 11m");
    check(
        &text,
        "000000R000",
        expect![[r#"
               0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               2m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               3m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               4m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               5m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               6m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               7m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
               8m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 360
        "#]],
    );
}

/// Series of the name `ALERTS_FOR_STATE` may come from any client that may write samples.
#[test]
fn a_written_time_that_is_to_come_or_out_of_range_holds_no_alert_back() {
    let series =
        [("__name__", "ALERTS_FOR_STATE"), ("alertname", "Down"), ("i", "a"), ("severity", "page")];
    // The second is after the sample that says it, and before the evaluation that reads it.
    for since in [1e12, 30.0, f64::MAX, f64::MIN] {
        let mut world = GroupFixture::new(&DOWN.replace("for: 2m", "for: 20m"));
        world.restart();
        world.set(&series, since);
        let mut shown = String::new();
        for _ in 0..=20 {
            world.set(&UP, 0.0);
            shown = world.show();
            world.now += MINUTE;
        }
        assert!(shown.starts_with("20m firing(1)"), "{since}: {shown}");
    }
}

/// The samples of a group with an offset are older than its evaluations.
#[test]
fn an_offset_of_queries_holds_no_alert_back_after_a_restart() {
    let text = DOWN.replace("for: 2m", "for: 20m");
    let mut world = GroupFixture::new(&text.replace("name: g", "name: g, query_offset: 5m"));
    let mut shown = String::new();
    for minute in 0..=27 {
        // One evaluation has found the alert; the second one after the restart reads its sample.
        if minute == 6 {
            world.restart();
        }
        world.set(&UP, 0.0);
        shown = world.show();
        world.now += MINUTE;
    }
    assert!(shown.starts_with("27m firing(1)"), "{shown}");
}

#[test]
fn recorded_series_end_when_they_are_gone() {
    let text = "groups: [{name: g, query_offset: 0s, rules: [{record: 'job:up', expr: 'up > 0', labels: {i: '', j: b}}]}]";
    check(
        text,
        "1x1",
        expect![[r#"
               0m Ok | job:up{j="b"} 1
               1m Ok
               2m Ok | job:up{j="b"} 1
        "#]],
    );
}

#[test]
fn errors_are_said_and_nothing_ends_by_them() {
    let text = "groups: [{name: g, limit: 1, rules: [{record: 'job:up', expr: 'sum by (i) (up)'}, \
        {record: 'job:twice', expr: 'up', labels: {i: same}}, {alert: A, expr: up}]}]";
    let mut world = GroupFixture::new(text);
    world.set(&UP, 1.0);
    let before = world.show();
    world.now += MINUTE;
    world.set(&UP, 1.0);
    world.set(&[("__name__", "up"), ("i", "b")], 1.0);
    let after = world.show();
    let errors = world.group.status().rules.into_iter().map(|rule| match rule {
        RuleStatus::Recording { last_error, .. } | RuleStatus::Alerting { last_error, .. } => {
            last_error + "\n"
        }
    });
    expect![[r#"
        0m Ok Ok firing(1) | ALERTS{alertname="A", alertstate="firing", i="a"} 1 | ALERTS_FOR_STATE{alertname="A", i="a"} 0 | job:twice{i="same"} 1 | job:up{i="a"} 1 ! firing a 0..4
        1m Err Err inactive(0) | ALERTS{alertname="A", alertstate="firing", i="a"} 1 | ALERTS_FOR_STATE{alertname="A", i="a"} 0 | job:twice{i="same"} 1 | job:up{i="a"} 1
        exceeded limit of 1 with 2 series
        vector contains metrics with the same labelset after applying rule labels
        exceeded limit of 1 with 2 alerts
    "#]].assert_eq(&(before + &after + &errors.collect::<String>()));
}

#[test]
fn what_is_not_told_or_written_is_due_again() {
    let text = DOWN.replace("for: 2m, ", "");
    let mut world = GroupFixture::new(&text);
    world.set(&UP, 0.0);
    world.failures = InjectedFailures { append: true, notify: true };
    let first = world.show();
    let status = serde_json::to_value(world.group.status()).expect("JSON");
    assert_eq!(status["rules"][0]["health"], "err");
    assert_eq!(status["rules"][0]["lastError"], "disk full");
    world.failures = InjectedFailures::default();
    world.now += 1_000;
    let second = world.show();
    world.now += 1_000;
    let third = world.show();
    expect![[r#"
           0m firing(1) ! firing a 0..4
           0m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 0..4
           0m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
    "#]].assert_eq(&(first + &second + &third));
}

#[test]
fn a_reload_goes_on_where_it_was() {
    let text = "groups: [{name: g, rules: [{record: 'job:a', expr: up}, {record: 'job:b', expr: up}, {alert: Down, expr: 'up == 0'}]}]";
    let mut world = GroupFixture::new(text);
    world.set(&UP, 0.0);
    let mut out = world.show();
    world.now += MINUTE;
    let changed = "groups: [{name: g, rules: [{alert: Down, expr: 'up < 1', for: 1h}, {record: 'job:b', expr: up * 2}]}]";
    let mut group = RuleGroup::new(parse_group(changed), MINUTE, GroupStart::Fresh);
    std::mem::swap(&mut group, &mut world.group);
    let labels = external_labels();
    let notices = world.group.adopt(group, world.now, notify_options(&labels));
    assert_eq!(notices, [], "the alert is still that of a rule");
    world.set(&UP, 0.0);
    out += &world.show();
    let group = RuleGroup::new(parse_group(text), MINUTE, GroupStart::Fresh);
    let retired = std::mem::replace(&mut world.group, group);
    let retired = retired.retire(world.now + 1, notify_options(&labels));
    let ended = retired.samples.iter().map(|sample| {
        assert!(is_stale(sample.value));
        format!("{} ends at {}\n", sample.labels, sample.time_ms)
    });
    out += &ended.collect::<String>();
    expect![[r#"
        0m Ok Ok firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a"} 0 | job:a{i="a"} 0 | job:b{i="a"} 0 ! firing a 0..4
        1m firing(1) Ok | ALERTS{alertname="Down", alertstate="firing", i="a"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a"} 0 | job:b{i="a"} 0
        ALERTS{alertname="Down", alertstate="firing", i="a"} ends at 60001
        ALERTS_FOR_STATE{alertname="Down", i="a"} ends at 60001
        job:b{i="a"} ends at 60001
    "#]].assert_eq(&out);
}

#[test]
fn alerts_end_with_their_rule() {
    let text = "groups: [{name: g, rules: [{alert: Down, expr: 'up == 0'}, {alert: Low, expr: 'up < 1'}, {alert: Soon, expr: 'up < 1', for: 1h}]}]";
    let mut world = GroupFixture::new(text);
    let labels = external_labels();
    world.set(&UP, 0.0);
    world.evaluate();
    let before = world.notified_keys.clone();
    world.now += MINUTE;
    let changed = "groups: [{name: g, rules: [{alert: Low, expr: 'up < 1'}]}]";
    let group = RuleGroup::new(parse_group(changed), MINUTE, GroupStart::Fresh);
    let old = std::mem::replace(&mut world.group, group);
    let mut ended = world.group.adopt(old, world.now, notify_options(&labels));
    // The one that stays is not told again, until it goes too.
    assert_eq!(world.evaluate(), []);
    let group = RuleGroup::new(parse_group(text), MINUTE, GroupStart::Fresh);
    let old = std::mem::replace(&mut world.group, group);
    ended.extend(old.retire(world.now + 1, notify_options(&labels)).notices);
    let summaries: Vec<_> = ended
        .iter()
        .map(|notice| {
            let name = notice.labels.get("alertname");
            (name, notice.is_resolved, notice.starts_at, notice.ends_at)
        })
        .collect();
    let expected = [("Down", true, 0, MINUTE), ("Low", true, 0, MINUTE + 1)];
    assert_eq!(summaries, expected);
    for notice in &ended {
        let notification_key = world.notification_log.due_key(notice).expect("it is news");
        let key = notification_key.key.replace("resolved", "firing");
        assert!(before.contains_key(&key), "{key} of {before:?}");
    }
}

const FULL: &str = "groups: [{name: g, interval: 30s, rules: [{record: 'job:up', expr: up, labels: {a: b}}, \
    {alert: Down, expr: 'up == 0', for: 0s, labels: {severity: page}, annotations: {summary: '{{ $labels.i }} {{ $value }}'}}]}]";

/// A rule that fires and one that records, evaluated once, with what is to be told.
fn evaluate_full() -> (super::super::RulesStatus, Vec<AlertNotification>) {
    let mut world = GroupFixture::new(FULL);
    world.now = 1_000_000;
    world.set(&UP, 0.0);
    let notices = world.evaluate();
    let groups = vec![world.group.status()];
    let status = super::super::RulesStatus { groups, group_next_token: None };
    (status, notices)
}

#[test]
fn what_the_api_says_of_rules() {
    let (status, _) = evaluate_full();
    let rules = serde_json::to_value(&status).expect("JSON")["groups"][0]["rules"].clone();
    let mut out = format!("{}\n{}\n", rules[0], rules[1]);
    let mut group = status.groups[0].clone();
    group.rules.clear();
    out += &serde_json::to_string(&group).expect("JSON");
    expect![[r#"
        {"type":"recording","name":"job:up","query":"up","labels":{"a":"b"},"health":"ok","evaluationTime":0.005,"lastEvaluation":"1970-01-01T00:16:40.000000Z"}
        {"type":"alerting","state":"firing","name":"Down","query":"up == 0","duration":0.0,"keepFiringFor":0.0,"labels":{"severity":"page"},"annotations":{"summary":"{{ $labels.i }} {{ $value }}"},"alerts":[{"labels":{"alertname":"Down","i":"a","severity":"page"},"annotations":{"summary":"a 0"},"state":"firing","activeAt":"1970-01-01T00:16:40.000000Z","value":"0e+00"}],"health":"ok","evaluationTime":0.005,"lastEvaluation":"1970-01-01T00:16:40.000000Z"}
        {"name":"g","file":"f.yml","rules":[],"interval":30.0,"limit":0,"evaluationTime":0.005,"lastEvaluation":"1970-01-01T00:16:40.000000Z","missedEvaluations":0}"#]].assert_eq(&out);
}

#[test]
fn what_the_api_says_of_alerts() {
    let (status, _) = evaluate_full();
    expect![[r#"{"alerts":[{"labels":{"alertname":"Down","i":"a","severity":"page"},"annotations":{"summary":"a 0"},"state":"firing","activeAt":"1970-01-01T00:16:40.000000Z","value":"0e+00"}]}"#]]
    .assert_eq(&serde_json::to_string(&status.alerts()).expect("JSON"));
}

#[test]
fn what_receivers_are_sent() {
    let (_, notices) = evaluate_full();
    let notices: Vec<&AlertNotification> = notices.iter().collect();
    let out = [
        task_body(notices[0]),
        alertmanager_body(&notices),
        webhook_body("hook", "http://egret", &notices),
    ];
    expect![[r#"
        {"status":"firing","labels":{"alertname":"Down","cluster":"eu","i":"a","severity":"page"},"annotations":{"summary":"a 0"},"startsAt":"1970-01-01T00:16:40.000000Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://egret/graph?g0.expr=up+%3D%3D+0&g0.tab=1","fingerprint":"6b195f4aff9bd12a"}
        [{"labels":{"alertname":"Down","cluster":"eu","i":"a","severity":"page"},"annotations":{"summary":"a 0"},"startsAt":"1970-01-01T00:16:40.000000Z","endsAt":"1970-01-01T00:20:40.000000Z","generatorURL":"http://egret/graph?g0.expr=up+%3D%3D+0&g0.tab=1"}]
        {"version":"4","groupKey":"{}:{alertname=\"Down\"}","truncatedAlerts":0,"status":"firing","receiver":"hook","groupLabels":{"alertname":"Down"},"commonLabels":{"alertname":"Down","cluster":"eu","i":"a","severity":"page"},"commonAnnotations":{"summary":"a 0"},"externalURL":"http://egret","alerts":[{"status":"firing","labels":{"alertname":"Down","cluster":"eu","i":"a","severity":"page"},"annotations":{"summary":"a 0"},"startsAt":"1970-01-01T00:16:40.000000Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://egret/graph?g0.expr=up+%3D%3D+0&g0.tab=1","fingerprint":"6b195f4aff9bd12a"}]}"#]].assert_eq(&out.join("\n"));
}

#[test]
fn a_ledger_tells_once_and_again_after_a_while() {
    let notice = |at: i64, is_resolved| AlertNotification {
        fingerprint: Fingerprint::from_labels(&Labels::new([("alertname", "A")])),
        own_labels: Labels::default(),
        labels: Labels::default(),
        annotations: Labels::default(),
        active_at: 5_500,
        starts_at: at,
        ends_at: at,
        is_resolved,
        made_at: at,
        generator_url: "".into(),
    };
    let mut notification_log = NotificationLog::new(Some(60_000));
    let mut out = String::new();
    for (at, is_resolved) in [(10, false), (20, false), (70, false), (80, true), (200, true)] {
        let notice = notice(at * 1_000, is_resolved);
        if let Some(notification_key) = notification_log.due_key(&notice) {
            out += &format!("{at} {}\n", notification_key.key);
            notification_log.record_delivered(&notice, notification_key);
        }
    }
    expect![[r#"
        10 series/alert/d2c6efc389df0927/5/firing/0
        70 series/alert/d2c6efc389df0927/5/firing/1
        80 series/alert/d2c6efc389df0927/5/resolved/0
    "#]]
    .assert_eq(&out);
}
