//! Monotonicity of document ids.

use std::collections::HashSet;
use std::time::Duration;

use egret_base::clock::ManualClock;
use egret_base::{SeededEntropy, Timestamp};

use super::*;

#[test]
fn numbers_grow_even_if_the_clock_goes_back() {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1_700_000_000_000_000)));
    let ids = IdGenerator::new(clock.clone(), Arc::new(SeededEntropy::new(1)));
    let mut before = DocumentNumber::MIN;
    let mut seen = HashSet::new();
    for round in 0..10_000 {
        match round {
            3_000 => clock.advance(Duration::from_millis(1)),
            6_000 => clock.set_back(Duration::from_secs(3_600)),
            9_000 => clock.advance(Duration::from_secs(7_200)),
            _ => {}
        }
        let id = ids.next();
        assert!(id.number() > before);
        assert!(seen.insert(id));
        assert_eq!(id.uuid().get_version_num(), 7);
        assert_eq!(id.uuid().get_variant(), uuid::Variant::RFC4122);
        before = id.number();
    }
}

#[test]
fn numbers_continue_after_existing_ones() {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1_700_000_000_000_000)));
    let ids = IdGenerator::new(clock, Arc::new(SeededEntropy::new(1)));
    let late = DocumentNumber(1_900_000_000_000 << 16 | 0x7fff);
    ids.continue_after(late);
    let id = ids.next();
    assert_eq!(id.number().0, 1_900_000_000_001 << 16 | 0x7000);
}
