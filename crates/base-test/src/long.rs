//! What `make test-long` adds to a test: more seeds of a simulator, more repetitions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Set by `make test-long`.
const LONG: &str = "EGRET_TEST_LONG";

/// How much more a long run does.
const LONG_FACTOR: u64 = 10;

const SECONDS_PER_DAY: u64 = 86_400;

/// Repetitions of a test: `default`, or ten times as many in a long run.
pub fn repetitions(default: u32) -> u32 {
    if is_long() { default * LONG_FACTOR as u32 } else { default }
}

/// Runs a simulation with `default` seeds from 0 on, on every core; a long run has ten times as
/// many, from a number on that depends on the date. `EGRET_NAME_SEEDS` sets how many,
/// `EGRET_NAME_SEED` runs one.
///
/// # Panics
/// When the simulation does; the seed is printed before.
pub fn run_over_seeds(name: &str, default: u64, run: impl Fn(u64) + Sync) {
    let variable = format!("EGRET_{name}_SEED");
    if let Some(seed) = env_number(&variable) {
        return run(seed);
    }
    let long = if is_long() { default * LONG_FACTOR } else { default };
    let count = env_number(&format!("{variable}S")).unwrap_or(long);
    let first = if is_long() { days_since_epoch() * count } else { 0 };
    let last = first + count;
    println!("{name}: seeds {first} to {}", last - 1);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let _reporter = SeedReporter { variable: &variable, seed };
                    run(seed);
                }
            });
        }
    });
}

/// Prints the seed when the simulation panics.
struct SeedReporter<'a> {
    variable: &'a str,
    seed: u64,
}

impl Drop for SeedReporter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { variable, seed } = self;
            eprintln!("seed {seed} fails; to repeat: {variable}={seed} cargo test …");
        }
    }
}

fn is_long() -> bool {
    std::env::var_os(LONG).is_some_and(|value| !value.is_empty())
}

/// Days since 1970.
fn days_since_epoch() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |since| since.as_secs() / SECONDS_PER_DAY)
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
