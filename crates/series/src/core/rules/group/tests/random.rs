//! Alerts whose conditions come and go at random, with restarts and failures: what holds whatever
//! happens.

use egret_log::simulated::SplitMix64;

use super::*;

/// An alert for which the condition holds or not at random, with restarts, failures and gaps.
struct RandomAlertTest {
    world: GroupFixture,
    chance: SplitMix64,
    /// Its `for`, in minutes.
    hold: u32,
    is_down: bool,
    /// Passes for which the condition has held.
    held: u32,
    /// Whether the alert's state follows from `held`: after a restart it does not until it has
    /// begun anew.
    is_certain: bool,
    /// Passes until what was before a restart is known and has been evaluated: until then an alert
    /// that fired before it may fire without its condition.
    unrestored: u32,
    /// What was written before a restart is seen for as long as queries look back: until then.
    alone_from: TimeMs,
}

impl RandomAlertTest {
    fn new(seed: u64) -> Self {
        let mut chance = SplitMix64::new(seed);
        let hold = [0, 2, 15][chance.below(3) as usize];
        Self {
            world: GroupFixture::new(&DOWN.replace("for: 2m", &format!("for: {hold}m"))),
            chance,
            hold,
            is_down: false,
            held: 0,
            is_certain: true,
            unrestored: 0,
            alone_from: 0,
        }
    }

    fn minute(&mut self) {
        self.is_down ^= self.chance.below(8) == 0;
        if self.chance.below(25) == 0 {
            self.world.restart();
            self.is_certain = false;
            self.unrestored = 3;
            self.alone_from = self.world.now + 6 * MINUTE;
        }
        self.world.fails = InjectedFailures {
            append: self.chance.below(10) == 0,
            tell: self.chance.below(10) == 0,
        };
        self.world.set(&UP, if self.is_down { 0.0 } else { 1.0 });
        let notices = self.world.pass();
        self.held = if self.is_down { self.held + 1 } else { 0 };
        self.unrestored = self.unrestored.saturating_sub(1);
        self.is_certain |= !self.is_down && self.unrestored == 0;
        self.check(&notices);
        self.world.now += MINUTE;
    }

    fn check(&self, notices: &[AlertNotification]) {
        let status = self.world.group.status();
        let RuleStatus::Alerting {
            state, ref alerts, ..
        } = status.rules[0]
        else {
            panic!("it is an alerting rule");
        };
        // A minute passes between two passes, so that after n of them the condition has held for n
        // - 1 minutes.
        let wanted = match self.held {
            0 => "inactive",
            held if held > self.hold => "firing",
            _ => "pending",
        };
        let now = self.world.now;
        assert!(
            !self.is_certain || state == wanted,
            "at {now}: {state}, not {wanted}"
        );
        assert!(
            state != "firing" || self.is_down || self.unrestored > 0,
            "at {now}: it fires though its condition does not hold"
        );
        if !self.world.fails.append && now >= self.alone_from {
            let series = self.world.query("ALERTS");
            assert_eq!(
                series.len(),
                alerts.as_ref().map_or(0, Vec::len),
                "at {now}: {series:?}"
            );
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
        let mut life = RandomAlertTest::new(seed);
        for _ in 0..200 {
            life.minute();
        }
        // A receiver of a resolved alert was told before that it fires, unless that failed.
        let told = &life.world.told;
        let count = |state: &str| told.keys().filter(|key| key.contains(state)).count();
        assert!(
            told.len() <= 40 && count("resolved") <= count("firing") + 8,
            "{told:?}"
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
                world.pass();
                world.now += MINUTE;
            }
            let keys: Vec<&String> = world.told.keys().collect();
            assert_eq!(keys.len(), 2, "for {hold}, every {first} minutes: {keys:?}");
        }
    }
}
