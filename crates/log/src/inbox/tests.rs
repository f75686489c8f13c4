//! Limits, waking and closing of an inbox.

use std::sync::Arc;

use super::*;

fn small_inbox() -> Inbox<u32> {
    Inbox::new(InboxLimits {
        items_name: "waiting_max",
        items_max: 3,
        bytes_name: "waiting_bytes_max",
        bytes_max: 100,
    })
}

#[test]
fn what_is_held_counts_as_waiting() {
    let inbox = Inbox::new(InboxLimits {
        items_name: "items",
        items_max: 3,
        bytes_name: "bytes",
        bytes_max: 100,
    });
    inbox.push(1, 60).unwrap();
    let mut taken = Vec::new();
    inbox.take_all(&mut taken, None);
    inbox.set_unprocessed(1, 60);
    inbox.push(2, 40).unwrap();
    assert!(matches!(inbox.push(3, 1), Err(InboxRejection::Full(3, _))));
    inbox.set_unprocessed(0, 0);
    inbox.push(3, 1).unwrap();
}

#[test]
fn limits_hand_the_item_back_by_name() {
    let inbox = small_inbox();
    inbox.push(1, 1000).expect("an empty inbox takes any item");
    match inbox.push(2, 1) {
        Err(InboxRejection::Full(2, limit)) => assert_eq!(limit.name, "waiting_bytes_max"),
        other => panic!("{other:?}"),
    }
    let mut taken = Vec::new();
    assert_eq!(inbox.take_all(&mut taken, None), DrainResult::Items);
    assert_eq!(taken, [1]);
    for item in 0..3 {
        inbox.push(item, 1).expect("there is room");
    }
    match inbox.push(3, 1) {
        Err(InboxRejection::Full(3, limit)) => assert_eq!(limit.name, "waiting_max"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_waits_is_taken_before_the_end_is_told() {
    let inbox = small_inbox();
    inbox.push(7, 1).expect("there is room");
    inbox.close();
    assert!(matches!(inbox.push(8, 1), Err(InboxRejection::Closed(8))));
    let mut taken = Vec::new();
    assert_eq!(inbox.take_all(&mut taken, None), DrainResult::Items);
    taken.clear();
    assert_eq!(inbox.take_all(&mut taken, None), DrainResult::Closed);
}

#[test]
fn a_timeout_and_a_wake_come_back_with_nothing() {
    let inbox = small_inbox();
    let mut taken = Vec::new();
    assert_eq!(inbox.take_all(&mut taken, Some(Duration::ZERO)), DrainResult::Nothing);
    inbox.wake();
    assert_eq!(inbox.take_all(&mut taken, None), DrainResult::Nothing);
}

#[test]
fn everything_from_many_threads_arrives_once() {
    let inbox = Arc::new(Inbox::new(InboxLimits {
        items_name: "waiting_max",
        items_max: 64,
        bytes_name: "waiting_bytes_max",
        bytes_max: usize::MAX,
    }));
    let senders: Vec<_> = (0..4u32)
        .map(|sender| {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || {
                for number in 0..1000 {
                    let mut item = sender * 1000 + number;
                    while let Err(InboxRejection::Full(back, _)) = inbox.push(item, 1) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let (mut all, mut taken) = (Vec::new(), Vec::new());
    while all.len() < 4000 {
        assert_eq!(inbox.take_all(&mut taken, None), DrainResult::Items);
        all.append(&mut taken);
    }
    for sender in senders {
        sender.join().expect("senders do not panic");
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..4000));
}
