//! Alerts that fired before a restart and whose condition has ended.

use super::*;

/// What was told as firing is told as resolved, also when its condition ended during the restart
/// or while the state was not read yet; once, also by another restart.
#[test]
fn what_fired_before_a_restart_is_told_as_resolved() {
    check(
        DOWN,
        "000R1111R111",
        expect![[r#"
        0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 2..6
        3m inactive(0) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        4m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        5m inactive(0) ! resolved a 2..5
        6m inactive(0)
        7m inactive(0)
        8m inactive(0)
        9m inactive(0)
    "#]],
    );
    check(
        DOWN,
        "000R0011",
        expect![[r#"
        0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 2..6
        3m pending(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        4m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        5m inactive(0) ! resolved a 2..5
        6m inactive(0)
    "#]],
    );
    check(
        DOWN,
        "0001R1111",
        expect![[r#"
        0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        1m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 2..6
        3m inactive(0) ! resolved a 2..3
        4m inactive(0)
        5m inactive(0)
        6m inactive(0)
        7m inactive(0)
    "#]],
    );
    let kept = DOWN.replace("for: 2m", "for: 1m, keep_firing_for: 2m");
    check(
        &kept,
        "001R111111",
        expect![[r#"
        0m pending(1) | ALERTS{alertname="Down", alertstate="pending", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        1m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 1..5
        2m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        3m inactive(0) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        4m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        5m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0 ! firing a 1..9
        6m firing(1) | ALERTS{alertname="Down", alertstate="firing", i="a", severity="page"} 1 | ALERTS_FOR_STATE{alertname="Down", i="a", severity="page"} 0
        7m inactive(0) ! resolved a 1..7
        8m inactive(0)
    "#]],
    );
}

#[test]
fn an_alert_is_restored_by_the_rule_whose_fixed_labels_it_has() {
    let rule = |severity: &str, labels: &str| {
        format!("{{alert: Down, expr: 'up < 1{severity}', labels: {{{labels}}}}}")
    };
    let resolved_after_a_restart = |rules: [String; 2]| {
        let text = format!("groups: [{{name: g, rules: [{}]}}]", rules.join(", "));
        let mut world = GroupFixture::new(&text);
        world.set(&UP, 0.0);
        world.evaluate();
        world.restart();
        let mut resolved = Vec::new();
        for _ in 0..4 {
            world.now += MINUTE;
            // The condition of the first rule holds on.
            world.set(&UP, 0.5);
            let notices = world.evaluate().into_iter();
            let ended = notices.filter(|notice| notice.is_resolved);
            resolved.extend(ended.map(|notice| notice.labels.get("severity").to_owned()));
        }
        resolved
    };
    let ends = " == 0";
    let distinct = [rule("", "severity: low"), rule(ends, "severity: high")];
    assert_eq!(resolved_after_a_restart(distinct), ["high"]);
    let specific = [rule("", ""), rule(ends, "severity: high")];
    assert_eq!(resolved_after_a_restart(specific), ["high"]);
    // It may be that of the other rule, which fires on.
    let alike = [rule("", "severity: low"), rule(ends, "severity: low")];
    assert_eq!(resolved_after_a_restart(alike), [""; 0]);
}
