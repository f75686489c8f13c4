//! Ids sort by time, survive printing and refuse other UUID versions.

use crate::{Entropy, SeededEntropy, Timestamp};

define_id!(
    /// An id for these tests.
    ThingId
);

#[test]
fn sorts_by_time_and_round_trips() {
    let entropy = SeededEntropy::new(7);
    let older = ThingId::new(Timestamp::from_micros(1_000_000), entropy.ten_bytes());
    let newer = ThingId::new(Timestamp::from_micros(2_000_000), entropy.ten_bytes());
    assert!(older < newer);
    assert_eq!(older.to_string().parse::<ThingId>(), Ok(older));
    assert_eq!(older.hex().parse::<ThingId>(), Ok(older));
    assert_eq!(older.hex().len(), 32);
}

#[test]
fn refuses_what_is_not_a_version_7_uuid() {
    let v4 = "9b2c8f7e-6d4a-4c1b-8e2f-1a2b3c4d5e6f";
    assert!(v4.parse::<ThingId>().unwrap_err().contains("version 7"));
    assert!("x".parse::<ThingId>().unwrap_err().contains("`x`"));
}
