//! Loops with workers made up, in real time: short, and judged by what cannot depend on the
//! machine.

use std::sync::Mutex;

use super::*;
use crate::progress::Progress;
use crate::stage::{Stage, Subject};

fn stage() -> Stage {
    Stage {
        server: None,
        private_server: None,
        program: Default::default(),
        settings: Vec::new(),
        seed: 5,
        progress: Progress::hidden(),
        subject: Subject::default(),
        generator_cores: 1,
        operations_begun: 0,
        profile: false,
    }
}

fn load(pace: Pace, clients: u32) -> Load {
    Load {
        pace,
        clients,
        duration: Duration::from_millis(400),
        warmup_max: Duration::from_millis(100),
        threads: 2,
    }
}

const OPEN: Pace = Pace::Open { rate: 1_000.0, spacing: Spacing::Constant };

/// What was asked for, over all workers: each operation's number and a value drawn for it.
type Seen = Arc<Mutex<Vec<(u64, u64)>>>;

struct Sleeper {
    takes: Duration,
    seen: Seen,
}

impl Worker for Sleeper {
    async fn operate(&mut self, turn: &mut Operation) -> Result<Arc<str>, String> {
        use rand::RngExt;
        let drawn = turn.random.clone().random();
        self.seen.lock().unwrap().push((turn.number, drawn));
        let begun = Instant::now();
        // A server that takes its time.
        let _ = tokio::time::timeout(self.takes, std::future::pending::<()>()).await;
        turn.record_phase("sleep", begun.elapsed());
        match turn.random.random_range(0..10) {
            0 => Err("unlucky".to_owned()),
            _ => Ok("nap".into()),
        }
    }
}

async fn run(pace: Pace, clients: u32, takes: Duration) -> (Measurement, Vec<(u64, u64)>) {
    run_on(&mut stage(), pace, clients, takes).await
}

async fn run_on(
    stage: &mut Stage,
    pace: Pace,
    clients: u32,
    takes: Duration,
) -> (Measurement, Vec<(u64, u64)>) {
    let seen = Seen::default();
    let workers = seen.clone();
    let make = move |_| {
        let seen = workers.clone();
        async move { Ok(Sleeper { takes, seen }) }
    };
    let measured = run_load(stage, &load(pace, clients), make).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (measured, seen)
}

#[tokio::test]
async fn a_closed_loop_has_a_capacity_and_counts_all_it_began() {
    let (measured, seen) = run(Pace::Closed, 4, Duration::from_millis(5)).await;
    let recording = &measured.recording;
    assert!(measured.metrics.contains_key("capacity"));
    assert!(!measured.metrics.contains_key("late"));
    assert_eq!(recording.dropped, 0);
    let ended = recording.total_successes() + recording.failures();
    assert!(ended > 40 && (ended as usize) < seen.len(), "{ended}");
    assert!(recording.errors["unlucky"] > 0);
    assert!(!recording.phases().contains_key("queue"));
    assert_eq!(recording.check_phases(4, measured.observation.wall), None);
    // One cold operation of each worker, apart from the window.
    let cold: Vec<u64> = measured.cycles.iter().map(|cycle| cycle.index).collect();
    assert_eq!(cold, [0, 1, 2, 3]);
    assert!(measured.cycles[0].latencies_ms.contains_key("connect"));
    let warmup = measured.warmup.unwrap();
    assert!(!warmup.steady && warmup.seconds < 5.0);
    assert_eq!(warmup.watched, Some(Watched::Rate));
}

#[tokio::test]
async fn an_open_loop_does_the_whole_schedule_however_long_it_takes() {
    // Two workers can do 400 a second; 1,000 are due.
    let (measured, seen) = run(OPEN, 2, Duration::from_millis(5)).await;
    let recording = &measured.recording;
    assert_eq!(recording.total_successes() + recording.failures(), 400);
    assert_eq!(recording.dropped, 0);
    assert!(recording.late_count > 300, "{}", recording.late_count);
    // Two equal servers may have none and a few of them: that is no difference to judge.
    assert_eq!(measured.metrics["late"].better, Better::Neither);
    // The last of them waited for more than half a second, which no single one of them took.
    let nap = &recording.metrics()["nap"];
    assert!(nap.max.unwrap() > 500.0, "{:?}", nap.max);
    assert!(recording.phases()["queue"].p95 > Some(400.0));
    assert!(measured.warnings[0].contains("started late"), "{:?}", measured.warnings);
    let before = seen.len() as u64 - 400;
    let mut window: Vec<u64> = seen[seen.len() - 400..].iter().map(|one| one.0).collect();
    window.sort_unstable();
    assert_eq!(window, (before..before + 400).collect::<Vec<u64>>());
}

/// What inserts its number as a key must not meet a key of the warm-up or of an earlier run.
#[tokio::test]
async fn no_two_operations_of_a_measurement_have_one_number() {
    for pace in [Pace::Closed, OPEN] {
        let mut stage = stage();
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let (_, seen) = run_on(&mut stage, pace, 4, Duration::from_millis(1)).await;
            numbers.extend(seen.iter().map(|one| one.0));
        }
        numbers.sort_unstable();
        let expected: Vec<u64> = (0..numbers.len() as u64).collect();
        assert_eq!(numbers, expected, "{pace:?}");
        assert_eq!(stage.operations_begun, numbers.len() as u64);
    }
}

/// What the warm-up brings into caches would otherwise be just what the window asks for.
#[tokio::test]
async fn a_warm_up_draws_other_values_than_the_window_and_every_window_the_same() {
    let mut stage = stage();
    let mut windows = Vec::new();
    for _ in 0..2 {
        let (_, seen) = run_on(&mut stage, OPEN, 4, Duration::from_millis(1)).await;
        let (warmup, window) = seen.split_at(seen.len() - 400);
        let drawn = |part: &[(u64, u64)]| -> std::collections::BTreeSet<u64> {
            part.iter().map(|one| one.1).collect()
        };
        assert!(!warmup.is_empty() && drawn(warmup).is_disjoint(&drawn(window)));
        windows.push(drawn(window));
    }
    assert_eq!(windows[0], windows[1]);
}

#[tokio::test]
async fn thousands_of_workers_share_the_histograms_of_their_threads() {
    let load = load(Pace::Closed, 2_000);
    let make = |_| async { Ok(Sleeper { takes: Duration::from_millis(1), seen: Seen::default() }) };
    let pulse = Arc::new(RateCounter::default());
    let mut crew = WorkerPool::start(&load, make, pulse).await.unwrap();
    let dispatch = Dispatch::new(&load, Instant::now(), load.duration, 1, 0);
    let until = Instant::now() + Duration::from_secs(60);
    let recorders = crew.run(&dispatch, until).await.unwrap();
    assert_eq!(recorders.len(), 2);
    let ended: u64 = recorders.iter().map(crate::record::Recorder::count).sum();
    assert_eq!(ended, dispatch.begun_count());
}

#[tokio::test]
async fn the_same_seed_makes_the_same_load() {
    let (first, _) = run(OPEN, 16, Duration::from_millis(1)).await;
    let (second, _) = run(OPEN, 3, Duration::from_millis(1)).await;
    // Which operations fail does not depend on the worker that does them.
    assert_eq!(first.recording.errors, second.recording.errors);
}

#[tokio::test]
async fn a_worker_that_cannot_be_made_ends_the_measurement() {
    let make = |number| async move {
        match number {
            3 => Err(anyhow::anyhow!("no more connections")),
            _ => Ok(Sleeper { takes: Duration::ZERO, seen: Seen::default() }),
        }
    };
    let error = run_load(&mut stage(), &load(Pace::Closed, 4), make).await.unwrap_err();
    assert_eq!(error.to_string(), "no more connections");
}
