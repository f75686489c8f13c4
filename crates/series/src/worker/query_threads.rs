//! A pool of threads that all queries share.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use egret_promql::{EvaluatePart, Executor, Serial};

/// Threads that help to evaluate queries while they are idle: a query never waits for a thread that
/// is busy with another.
pub(crate) struct QueryThreads {
    pool: ThreadPool,
    idle_count: AtomicUsize,
}

/// Threads that a query has reserved. They are idle again when this is dropped.
struct ThreadGuard<'threads> {
    threads: &'threads QueryThreads,
    count: usize,
}

impl QueryThreads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// The operating system starts no more threads.
    pub(crate) fn start(count: usize) -> Result<Self, ThreadPoolBuildError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(count.max(1))
            .thread_name(|number| format!("series-query-{number}"))
            .build()?;
        Ok(Self { idle_count: AtomicUsize::new(pool.current_num_threads()), pool })
    }

    fn reserve(&self, count_max: usize) -> ThreadGuard<'_> {
        let decrement = |free: usize| Some(free - free.min(count_max));
        let idle_before =
            self.idle_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement);
        ThreadGuard { threads: self, count: idle_before.unwrap_or(0).min(count_max) }
    }
}

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        self.threads.idle_count.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl Executor for QueryThreads {
    fn run(&self, parts: usize, evaluate_part: &EvaluatePart<'_>) {
        let reserved = self.reserve(parts.saturating_sub(1));
        if reserved.count == 0 {
            return Serial.run(parts, evaluate_part);
        }
        let next_part = AtomicUsize::new(0);
        let evaluate_parts = || {
            loop {
                let part = next_part.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    return;
                }
                evaluate_part(part);
            }
        };
        self.pool.in_place_scope(|scope| {
            for _ in 0..reserved.count {
                scope.spawn(|_| evaluate_parts());
            }
            evaluate_parts();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn every_part_is_done_once_by_several_threads_at_once() {
        let threads = QueryThreads::start(2).expect("threads");
        let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        // The first three parts wait for each other.
        let barrier = Barrier::new(3);
        threads.run(counts.len(), &|part| {
            if part < 3 {
                barrier.wait();
            }
            counts[part].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert_eq!(threads.idle_count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_query_does_not_wait_for_busy_threads() {
        let threads = QueryThreads::start(1).expect("a thread");
        let evaluated = AtomicUsize::new(0);
        threads.run(2, &|_| {
            threads.run(4, &|_| {
                evaluated.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(evaluated.load(Ordering::Relaxed), 8);
    }
}
