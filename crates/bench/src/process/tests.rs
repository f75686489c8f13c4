//! Time goes to whom it belongs: itself, the system, named others.

use super::*;

fn process(name: &str, parent: u32, ticks: u64, ticks_of_children: u64) -> Process {
    Process {
        name: name.to_owned(),
        parent,
        started: 1,
        ticks,
        ticks_of_children,
    }
}

fn snapshot(busy: u64, processes: Vec<(u32, Process)>) -> Snapshot {
    Snapshot {
        processes: processes.into_iter().collect(),
        busy,
    }
}

#[test]
fn a_name_may_hold_parentheses_and_spaces() {
    let stat = "42 (post (x) gres) S 7 42 42 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 999 1 2";
    let found = parse(stat).unwrap();
    assert_eq!(found.name, "post (x) gres");
    assert_eq!((found.parent, found.started), (7, 999));
    assert_eq!((found.ticks, found.ticks_of_children), (110, 150));
    assert_eq!(parse("nonsense"), None);
}

#[test]
fn ended_children_of_the_system_are_counted_once() {
    let before = snapshot(
        1_000,
        vec![
            (10, process("postgres", 1, 100, 5)),
            (11, process("postgres", 10, 30, 0)),
            (20, process("browser", 1, 400, 0)),
        ],
    );
    // 11 ended with 40 ticks, 12 came and used 7.
    let after = snapshot(
        1_200,
        vec![
            (10, process("postgres", 1, 100, 45)),
            (12, process("postgres", 10, 7, 0)),
            (20, process("browser", 1, 500, 0)),
        ],
    );
    let usage = after.since(&before, &[10]);
    assert_eq!(usage.system, time(17));
    assert_eq!(usage.other, time(183));
    assert_eq!(
        usage.named,
        BTreeMap::from([("browser".to_owned(), time(100))])
    );
}

#[test]
fn another_process_with_the_same_pid_starts_from_zero() {
    let before = snapshot(0, vec![(20, process("old", 1, 400, 0))]);
    let mut later = process("new", 1, 50, 0);
    later.started = 2;
    let usage = snapshot(50, vec![(20, later)]).since(&before, &[]);
    assert_eq!(usage.named["new"], time(50));
}

#[test]
fn this_process_is_seen_at_work() {
    let before = Snapshot::take().unwrap();
    assert_eq!(
        before.parent(std::process::id()),
        Some(std::os::unix::process::parent_id())
    );
    let until = std::time::Instant::now() + Duration::from_millis(200);
    while std::time::Instant::now() < until {
        std::hint::black_box(1);
    }
    let usage = Snapshot::take().unwrap().since(&before, &[]);
    assert!(usage.own >= Duration::from_millis(50), "{usage:?}");
}
