//! Alerts whose conditions come and go at random, with restarts and failures: what holds whatever happens.

use egret_log::simulated::Chance;

use super::*;

/// An alert for which the condition holds or not at random, with restarts, failures and gaps.
fn live(seed: u64) {
    let mut chance = Chance::new(seed);
    let hold = [0, 2, 15][chance.below(3) as usize];
    let text = DOWN.replace("for: 2m", &format!("for: {hold}m"));
    let mut world = World::new(&text);
    let mut down = false;
    let (mut held, mut certain) = (0, true);
    // Passes until what was before a restart is known.
    let mut unrestored = 0_u32;
    // What was written before a restart is seen for as long as queries look back.
    let mut alone_from = 0;
    for _ in 0..200 {
        if chance.below(8) == 0 {
            down = !down;
        }
        if chance.below(25) == 0 {
            world.restart();
            certain = false;
            unrestored = 2;
            alone_from = world.now + 6 * MINUTE;
        }
        world.fails = Fails {
            append: chance.below(10) == 0,
            tell: chance.below(10) == 0,
        };
        world.set(&UP, if down { 0.0 } else { 1.0 });
        let notices = world.pass();
        held = if down { held + 1 } else { 0 };
        unrestored = unrestored.saturating_sub(1);
        certain |= !down && unrestored == 0;
        let status = world.group.status();
        let RuleStatus::Alerting {
            state, ref alerts, ..
        } = status.rules[0]
        else {
            panic!("it is an alerting rule");
        };
        // A minute passes between two passes, so that after n of them the condition has held for n - 1 minutes.
        let wanted = match held {
            0 => "inactive",
            held if held > hold => "firing",
            _ => "pending",
        };
        assert!(
            !certain || state == wanted,
            "seed {seed} at {}: {state}, not {wanted}",
            world.now
        );
        assert!(
            state != "firing" || down,
            "seed {seed}: it fires and its condition does not hold"
        );
        if !world.fails.append && world.now >= alone_from {
            let series = world.query("ALERTS");
            assert_eq!(
                series.len(),
                alerts.len(),
                "seed {seed} at {}: {series:?}",
                world.now
            );
        }
        for notice in &notices {
            assert_eq!(notice.is_resolved, state == "inactive", "seed {seed}");
        }
        world.now += MINUTE;
    }
    // Who is told of a resolved alert was told that it fires, unless that failed.
    let count = |state: &str| world.told.keys().filter(|key| key.contains(state)).count();
    assert!(world.told.len() <= 40, "seed {seed}: {:?}", world.told);
    assert!(
        count("resolved") <= count("firing") + 8,
        "seed {seed}: {:?}",
        world.told
    );
}

#[test]
fn alerts_live_by_their_rules_whatever_happens() {
    for seed in 0..400 {
        live(seed);
    }
}

#[test]
fn no_restart_makes_a_second_task_of_an_alert_that_fires() {
    for hold in ["0s", "2m", "15m"] {
        for first in 1..12 {
            let text = DOWN.replace("for: 2m", &format!("for: {hold}"));
            let mut world = World::new(&text);
            for minute in 0..90 {
                if minute > 20 && minute % first == 0 && minute < 60 {
                    world.restart();
                }
                world.set(&UP, if minute < 75 { 0.0 } else { 1.0 });
                world.pass();
                world.now += MINUTE;
            }
            let keys: Vec<&String> = world.told.keys().collect();
            assert_eq!(keys.len(), 2, "for {hold}, every {first} minutes: {keys:?}");
        }
    }
}
