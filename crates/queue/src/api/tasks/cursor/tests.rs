//! What callers may hand in as a cursor.

use super::*;

#[test]
fn what_was_written_is_read() {
    for (state, partition, from) in [(0, 0, 0), (6, 3, 17), (1, 4_095, u64::MAX)] {
        let cursor = Cursor { state, partition, from };
        let read = Cursor::parse(&cursor.to_text(), &TaskState::ALL).unwrap();
        assert_eq!((read.state, read.partition, read.from), (state, partition, from));
    }
}

#[test]
fn what_is_none_is_refused() {
    let texts = [
        "x",
        "-",
        "--",
        "1-2",
        "1--3",
        "7-0-0",
        "-1-0-0",
        "0-0-18446744073709551616",
        "0-0-1é",
        "0-0-1-1",
    ];
    for text in texts {
        let read = Cursor::parse(text, &TaskState::ALL);
        assert!(matches!(read, Err(QueueError::Invalid { .. })), "{text}");
    }
}
