//! Numbers as others write them, too.

use super::*;

#[test]
fn zigzag_is_that_of_protocol_buffers() {
    let numbers = [0, -1, 1, -2, i64::MIN, i64::MAX];
    assert_eq!(numbers.map(zigzag), [0, 1, 2, 3, u64::MAX, u64::MAX - 1]);
    assert_eq!(numbers.map(zigzag).map(unzigzag), numbers);
}
