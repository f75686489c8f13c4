//! Which replica is elected, and when another takes its place.

use super::*;

const FAILOVER: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_first_is_elected_and_stays_while_it_sends() {
    let mut replicas = Replicas::new([], FAILOVER, 10, at(0));
    let elected = ElectionResult::Elected { previous: None };
    assert_eq!(replicas.record_request("c", "a", at(0)), elected);
    for second in 1..100 {
        assert_eq!(replicas.record_request("c", "b", at(second)), ElectionResult::Refused);
        assert_eq!(replicas.record_request("c", "a", at(second)), ElectionResult::Accepted);
    }
    // Another cluster is another matter.
    assert_eq!(replicas.record_request("d", "b", at(100)), elected);
}

#[test]
fn another_is_elected_after_silence_and_the_first_does_not_come_back() {
    let mut replicas = Replicas::new([], FAILOVER, 10, at(0));
    replicas.record_request("c", "a", at(10));
    assert_eq!(replicas.record_request("c", "b", at(39)), ElectionResult::Refused);
    let before = Some("a".into());
    assert_eq!(
        replicas.record_request("c", "b", at(40)),
        ElectionResult::Elected { previous: before }
    );
    assert_eq!(replicas.record_request("c", "a", at(41)), ElectionResult::Refused);
    assert_eq!(replicas.record_request("c", "b", at(42)), ElectionResult::Accepted);
}

#[test]
fn who_was_elected_before_a_restart_has_time_to_come_back() {
    let known = [("c".into(), "b".into())];
    let mut replicas = Replicas::new(known, FAILOVER, 10, at(5));
    assert_eq!(replicas.record_request("c", "a", at(34)), ElectionResult::Refused);
    assert_eq!(replicas.record_request("c", "b", at(34)), ElectionResult::Accepted);
    assert_eq!(replicas.elected_replicas().collect::<Vec<_>>(), [("c", "b")]);
}

#[test]
fn there_is_room_when_others_are_silent() {
    let mut replicas = Replicas::new([], FAILOVER, 2, at(0));
    replicas.record_request("a", "x", at(0));
    replicas.record_request("b", "x", at(20));
    assert_eq!(replicas.record_request("c", "x", at(29)), ElectionResult::TooMany);
    let elected = ElectionResult::Elected { previous: None };
    assert_eq!(replicas.record_request("c", "x", at(30)), elected);
    let known: Vec<_> = replicas.elected_replicas().map(|(cluster, _)| cluster).collect();
    assert_eq!(known, ["b", "c"]);
}

#[test]
fn who_is_only_judged_is_not_elected_and_was_not_heard() {
    let mut replicas = Replicas::new([], FAILOVER, 1, at(0));
    let elected = ElectionResult::Elected { previous: None };
    assert_eq!(replicas.decide("c", "a", at(0)), elected);
    assert_eq!(replicas.decide("c", "b", at(0)), elected);
    assert_eq!(replicas.record_request("c", "b", at(0)), elected);
    // Another replica was heard meanwhile.
    assert_eq!(replicas.record_request("c", "a", at(0)), ElectionResult::Refused);
    assert_eq!(replicas.decide("d", "a", at(29)), ElectionResult::TooMany);
    assert_eq!(replicas.decide("c", "b", at(29)), ElectionResult::Accepted);
    assert_eq!(replicas.decide("d", "a", at(30)), elected);
    let before = Some("b".into());
    assert_eq!(replicas.decide("c", "a", at(30)), ElectionResult::Elected { previous: before });
    assert_eq!(replicas.elected_replicas().collect::<Vec<_>>(), [("c", "b")]);
}
