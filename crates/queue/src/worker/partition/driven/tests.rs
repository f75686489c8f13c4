//! What a partition promises of a loss of power.

use egret_base::{ManualClock, SeededEntropy, Timestamp};
use egret_log::simulated::Chance;
use egret_log::{Durability, Housekeeping};

use super::*;

/// In how many of fifty runs a queue is lost with the power.
fn losses(durability: Durability, is_asked: bool) -> usize {
    let lost = |seed: &u64| {
        let disk = SimulatedDisk::new(1 << 20);
        let config = LogConfig {
            durability,
            segment_bytes: 64 << 10,
            first_segment_bytes: 8 << 10,
            batch_bytes_max: 32 << 10,
            housekeeping: Housekeeping::Owner,
            ..LogConfig::default()
        };
        let open = || {
            let clock = Arc::new(ManualClock::starting_at(Timestamp::from_micros(1)));
            let entropy = Arc::new(SeededEntropy::new(*seed));
            Driven::open(disk.clone(), config, clock, entropy, 0).unwrap()
        };
        let mut driven = open();
        driven.put_queue(1, &QueueSettings::default()).unwrap();
        if is_asked {
            driven.make_durable().unwrap();
        }
        drop(driven);
        disk.lose_power(&mut Chance::new(*seed));
        open().state().queue_with(1).is_none()
    };
    (0..50).filter(lost).count()
}

#[test]
fn what_was_asked_to_be_durable_survives_whatever_the_setting() {
    let hour = Durability::Interval(Duration::from_secs(3_600));
    assert_eq!(losses(Durability::Fsync, false), 0);
    for durability in [hour, Durability::None] {
        assert!(losses(durability, false) > 0);
        assert_eq!(losses(durability, true), 0);
    }
}
