//! Numbers are found in any order, and what has ended takes no room.

use super::*;

#[test]
fn answers_come_in_any_order() {
    let mut flight = InFlight::default();
    for name in ["a", "b", "c", "d"] {
        flight.begin(name);
    }
    assert_eq!(flight.end(2), Some("c"));
    assert_eq!(flight.end(2), None);
    assert_eq!(flight.end(9), None);
    assert_eq!(flight.end(0), Some("a"));
    assert_eq!(flight.begin("e"), 4);
    assert_eq!(flight.end(0), None);
    assert_eq!(flight.end(1), Some("b"));
    // The first three are gone, and the third was ended before.
    assert_eq!((flight.base, flight.slots.len(), flight.len()), (3, 2, 2));
    assert_eq!(flight.end(3), Some("d"));
    assert_eq!(flight.end(4), Some("e"));
    assert_eq!((flight.slots.len(), flight.len()), (0, 0));
    assert_eq!(flight.begin("f"), 5);
}
