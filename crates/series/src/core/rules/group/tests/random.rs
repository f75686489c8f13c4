//! Alerts whose conditions come and go at random, with restarts and failures: what holds whatever
//! happens.

use egret_log::simulated::SplitMix64;

use super::*;

/// An alert for which the condition holds or not at random, with restarts, failures and gaps.
struct RandomAlertTest {
    world: GroupFixture,
    random: SplitMix64,
    /// Its `for`, in minutes.
    for_minutes: u32,
    is_down: bool,
    /// Passes for which the condition has held.
    held_evaluations: u32,
    /// Whether the alert's state follows from `held`: after a restart it does not until it has
    /// begun anew.
    is_certain: bool,
    /// Passes until what was before a restart is known and has been evaluated: until then an alert
    /// that fired before it may fire without its condition.
    evaluations_until_restored: u32,
    /// What was written before a restart is seen for as long as queries look back: until then.
    old_samples_gone_at: TimeMs,
}

impl RandomAlertTest {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let hold = [0, 2, 15][random.next_below(3) as usize];
        Self {
            world: GroupFixture::new(&DOWN.replace("for: 2m", &format!("for: {hold}m"))),
            random,
            for_minutes: hold,
            is_down: false,
            held_evaluations: 0,
            is_certain: true,
            evaluations_until_restored: 0,
            old_samples_gone_at: 0,
        }
    }

    fn advance_minute(&mut self) {
        self.is_down ^= self.random.next_below(8) == 0;
        if self.random.next_below(25) == 0 {
            self.world.restart();
            self.is_certain = false;
            self.evaluations_until_restored = 3;
            self.old_samples_gone_at = self.world.now + 6 * MINUTE;
        }
        self.world.failures = InjectedFailures {
            append: self.random.next_below(10) == 0,
            notify: self.random.next_below(10) == 0,
        };
        self.world.set(&UP, if self.is_down { 0.0 } else { 1.0 });
        let notices = self.world.evaluate();
        self.held_evaluations = if self.is_down { self.held_evaluations + 1 } else { 0 };
        self.evaluations_until_restored = self.evaluations_until_restored.saturating_sub(1);
        self.is_certain |= !self.is_down && self.evaluations_until_restored == 0;
        self.check(&notices);
        self.world.now += MINUTE;
    }

    fn check(&self, notices: &[AlertNotification]) {
        let status = self.world.group.status();
        let RuleStatus::Alerting { state, ref alerts, .. } = status.rules[0] else {
            panic!("it is an alerting rule");
        };
        // A minute passes between two passes, so that after n of them the condition has held for n
        // - 1 minutes.
        let expected_state = match self.held_evaluations {
            0 => "inactive",
            held if held > self.for_minutes => "firing",
            _ => "pending",
        };
        let now = self.world.now;
        assert!(
            !self.is_certain || state == expected_state,
            "at {now}: {state}, not {expected_state}"
        );
        assert!(
            state != "firing" || self.is_down || self.evaluations_until_restored > 0,
            "at {now}: it fires though its condition does not hold"
        );
        if !self.world.failures.append && now >= self.old_samples_gone_at {
            let series = self.world.query("ALERTS");
            assert_eq!(series.len(), alerts.as_ref().map_or(0, Vec::len), "at {now}: {series:?}");
        }
        for notice in notices {
            assert_eq!(notice.is_resolved, state == "inactive", "at {now}");
        }
    }
}

#[test]
fn alerts_live_by_their_rules_whatever_happens() {
    for seed in 0..400 {
        // Shown when an assertion fails.
        println!("seed {seed}");
        let mut fixture = RandomAlertTest::new(seed);
        for _ in 0..200 {
            fixture.advance_minute();
        }
        // A receiver of a resolved alert was told before that it fires, unless that failed.
        let notified_keys = &fixture.world.notified_keys;
        let count = |state: &str| notified_keys.keys().filter(|key| key.contains(state)).count();
        assert!(
            notified_keys.len() <= 40 && count("resolved") <= count("firing") + 8,
            "{notified_keys:?}"
        );
    }
}

#[test]
fn no_restart_makes_a_second_task_of_an_alert_that_fires() {
    for hold in ["0s", "2m", "15m"] {
        for first in 1..12 {
            let text = DOWN.replace("for: 2m", &format!("for: {hold}"));
            let mut world = GroupFixture::new(&text);
            for minute in 0..90 {
                if minute > 20 && minute % first == 0 && minute < 60 {
                    world.restart();
                }
                world.set(&UP, if minute < 75 { 0.0 } else { 1.0 });
                world.evaluate();
                world.now += MINUTE;
            }
            let keys: Vec<&String> = world.notified_keys.keys().collect();
            assert_eq!(keys.len(), 2, "for {hold}, every {first} minutes: {keys:?}");
        }
    }
}
