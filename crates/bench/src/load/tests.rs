//! Loops with workers made up, in real time: short, and judged by what cannot depend on the machine.

use std::sync::Mutex;

use super::*;
use crate::progress::Progress;
use crate::stage::{Stage, Subject};

fn stage() -> Stage {
    Stage {
        server: None,
        private_postgres: None,
        private_proxy_port: None,
        seed: 5,
        progress: Progress::silent(),
        subject: Subject::default(),
        generator_cores: 1,
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

const OPEN: Pace = Pace::Open {
    rate: 1_000.0,
    spacing: Spacing::Constant,
};

/// What it was asked to do, over all workers.
type Seen = Arc<Mutex<Vec<u64>>>;

struct Sleeper {
    takes: Duration,
    seen: Seen,
}

impl Worker for Sleeper {
    async fn operate(&mut self, turn: &mut Turn) -> Result<Arc<str>, String> {
        use rand::RngExt;
        self.seen.lock().unwrap().push(turn.index);
        let begun = Instant::now();
        // A server that takes its time.
        let _ = tokio::time::timeout(self.takes, std::future::pending::<()>()).await;
        turn.phase("sleep", begun.elapsed());
        match turn.random.random_range(0..10) {
            0 => Err("unlucky".to_owned()),
            _ => Ok("nap".into()),
        }
    }
}

async fn run(pace: Pace, clients: u32, takes: Duration) -> (Measurement, Vec<u64>) {
    let seen = Seen::default();
    let workers = seen.clone();
    let make = move |_| {
        let seen = workers.clone();
        async move { Ok(Sleeper { takes, seen }) }
    };
    let measured = drive(&stage(), &load(pace, clients), make).await.unwrap();
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
    let ended = recording.successes_of_all() + recording.failures();
    assert!(ended > 40 && (ended as usize) < seen.len(), "{ended}");
    assert!(recording.errors["unlucky"] > 0);
    assert!(!recording.phases().contains_key("queue"));
    assert_eq!(recording.check_phases(4, measured.observed.wall), None);
    // One cold operation of each worker, apart from the window.
    let cold: Vec<u64> = measured.cycles.iter().map(|cycle| cycle.index).collect();
    assert_eq!(cold, [0, 1, 2, 3]);
    assert!(measured.cycles[0].latencies_ms.contains_key("connect"));
    let warmup = measured.warmup.unwrap();
    assert!(!warmup.steady && warmup.seconds < 5.0);
}

#[tokio::test]
async fn an_open_loop_does_the_whole_schedule_however_long_it_takes() {
    // Two workers can do 400 a second; 1,000 are due.
    let (measured, seen) = run(OPEN, 2, Duration::from_millis(5)).await;
    let recording = &measured.recording;
    assert_eq!(recording.successes_of_all() + recording.failures(), 400);
    assert_eq!(recording.dropped, 0);
    assert!(recording.late > 300, "{}", recording.late);
    // Two equal servers may have none and a few of them: that is no difference to judge.
    assert_eq!(measured.metrics["late"].better, Better::Neither);
    // The last of them waited for more than half a second, which no single one of them took.
    let nap = &recording.metrics()["nap"];
    assert!(nap.max.unwrap() > 500.0, "{:?}", nap.max);
    assert!(recording.phases()["queue"].p95 > 400.0);
    assert!(
        measured.warnings[0].contains("began late"),
        "{:?}",
        measured.warnings
    );
    let mut indexes = seen[seen.len() - 400..].to_vec();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..400).collect::<Vec<u64>>());
}

#[tokio::test]
async fn the_same_seed_makes_the_same_load() {
    let (first, _) = run(OPEN, 16, Duration::from_millis(1)).await;
    let (second, _) = run(OPEN, 3, Duration::from_millis(1)).await;
    // Which operations are unlucky does not depend on who does them.
    assert_eq!(first.recording.errors, second.recording.errors);
}

#[tokio::test]
async fn a_worker_that_cannot_be_made_ends_the_measurement() {
    let make = |number| async move {
        match number {
            3 => Err(anyhow::anyhow!("no more connections")),
            _ => Ok(Sleeper {
                takes: Duration::ZERO,
                seen: Seen::default(),
            }),
        }
    };
    let error = drive(&stage(), &load(Pace::Closed, 4), make)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "no more connections");
}
