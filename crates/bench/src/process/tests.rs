//! Time is counted for its owner: this process, the system, the kernel, or named other processes.

use super::*;

fn process(name: &str, parent: u32, ticks: u64, ticks_of_children: u64) -> Process {
    Process {
        name: name.to_owned(),
        parent,
        is_kernel: false,
        start_ticks: 1,
        cpu_time: ticks_to_duration(ticks),
        children_cpu_time: ticks_to_duration(ticks_of_children),
    }
}

fn snapshot(busy: u64, processes: Vec<(u32, Process)>) -> Snapshot {
    Snapshot { processes: processes.into_iter().collect(), busy_time: ticks_to_duration(busy) }
}

#[test]
fn a_name_may_hold_parentheses_and_spaces() {
    let stat = "42 (post (x) gres) S 7 42 42 0 -1 4194560 1 2 3 4 50 60 70 80 20 0 1 0 999 1 2";
    let (found, threads) = parse_stat(stat).unwrap();
    assert_eq!(found.name, "post (x) gres");
    assert_eq!((found.parent, found.start_ticks), (7, 999));
    assert_eq!(
        (found.cpu_time, found.children_cpu_time, threads),
        (ticks_to_duration(110), ticks_to_duration(150), 1)
    );
    assert!(!found.is_kernel);
    let thread = stat.replace("4194560", "69238880");
    assert!(parse_stat(&thread).unwrap().0.is_kernel);
    assert_eq!(parse_stat("nonsense"), None);
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
    let usage = after.usage_since(&before, &[10]);
    assert_eq!(usage.system, ticks_to_duration(17));
    assert_eq!(usage.other, ticks_to_duration(183));
    assert_eq!(
        usage.largest_others,
        BTreeMap::from([("browser".to_owned(), ticks_to_duration(100))])
    );
}

#[test]
fn threads_of_the_kernel_are_no_strangers() {
    let thread = |ticks| Process {
        is_kernel: true,
        ..process("kworker/u4:2-btrfs-endio-write", 2, ticks, 0)
    };
    let before = snapshot(0, vec![(30, thread(10))]);
    let usage = snapshot(100, vec![(30, thread(90))]).usage_since(&before, &[]);
    assert_eq!((usage.kernel, usage.other), (ticks_to_duration(80), ticks_to_duration(20)));
    assert_eq!(usage.largest_others, BTreeMap::new());
}

#[test]
fn what_the_generator_starts_is_its_own_but_not_the_system() {
    let own = std::process::id();
    let before = snapshot(
        0,
        vec![
            (own, process("egret", 1, 10, 0)),
            (own + 1, process("egret", own, 100, 0)),
            (own + 2, process("psql", own, 5, 0)),
        ],
    );
    // The psql has ended, another one came; the private Egret has a server by now.
    let after = snapshot(
        100,
        vec![
            (own, process("egret", 1, 12, 9)),
            (own + 1, process("egret", own, 130, 0)),
            (own + 3, process("psql", own, 6, 0)),
            (own + 4, process("postgres", own + 1, 20, 0)),
        ],
    );
    let usage = after.usage_since(&before, &[own + 1]);
    assert_eq!(usage.own, ticks_to_duration(12));
    assert_eq!(usage.system, ticks_to_duration(50));
    assert_eq!(usage.other, ticks_to_duration(38));
    assert_eq!(usage.largest_others, BTreeMap::new());
}

#[test]
fn another_process_with_the_same_pid_starts_from_zero() {
    let before = snapshot(0, vec![(20, process("old", 1, 400, 0))]);
    let mut later = process("new", 1, 50, 0);
    later.start_ticks = 2;
    let usage = snapshot(50, vec![(20, later)]).usage_since(&before, &[]);
    assert_eq!(usage.largest_others["new"], ticks_to_duration(50));
}

#[test]
fn this_process_is_seen_at_work() {
    let before = Snapshot::take().unwrap();
    assert_eq!(before.parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    let until = std::time::Instant::now() + Duration::from_millis(200);
    while std::time::Instant::now() < until {
        std::hint::black_box(1);
    }
    let usage = Snapshot::take().unwrap().usage_since(&before, &[]);
    assert!(usage.own >= Duration::from_millis(50), "{usage:?}");
}

#[test]
fn the_time_of_a_single_thread_is_finer_than_a_tick() {
    let mut child = std::process::Command::new("sh")
        .args(["-c", "read line"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let place = std::path::PathBuf::from(format!("/proc/{}", child.id()));
    // Told when the process is taken off its processor, here at the latest when it reads.
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    let run = loop {
        let run = precise_cpu_time(&place).unwrap();
        if !run.is_zero() {
            break run;
        }
        let is_late = std::time::Instant::now() > deadline;
        assert!(!is_late, "the time of the process stays zero");
        std::thread::yield_now();
    };
    assert!(!run.as_nanos().is_multiple_of(10_000_000), "{run:?}");
    drop(child.stdin.take());
    child.wait().unwrap();
}
