//! A pool of threads that all queries share.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use egret_promql::{EvaluatePart, Executor, Serial};

/// Threads that help to evaluate queries while they are idle: a query never waits for a thread that
/// is busy with another.
pub(crate) struct QueryThreads {
    pool: ThreadPool,
    free: AtomicUsize,
}

/// Threads that a query has reserved. They are idle again when this is dropped.
struct ThreadGuard<'threads> {
    from: &'threads QueryThreads,
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
        Ok(Self {
            free: AtomicUsize::new(pool.current_num_threads()),
            pool,
        })
    }

    fn take(&self, most: usize) -> ThreadGuard<'_> {
        let rest = |free: usize| Some(free - free.min(most));
        let before = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        ThreadGuard {
            from: self,
            count: before.unwrap_or(0).min(most),
        }
    }
}

impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        self.from.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

impl Executor for QueryThreads {
    fn run(&self, parts: usize, work: &EvaluatePart<'_>) {
        let taken = self.take(parts.saturating_sub(1));
        if taken.count == 0 {
            return Serial.run(parts, work);
        }
        let next = AtomicUsize::new(0);
        let work_on = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    return;
                }
                work(part);
            }
        };
        self.pool.in_place_scope(|scope| {
            for _ in 0..taken.count {
                scope.spawn(|_| work_on());
            }
            work_on();
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
        let times: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        // The first three parts wait for each other.
        let together = Barrier::new(3);
        threads.run(times.len(), &|part| {
            if part < 3 {
                together.wait();
            }
            times[part].fetch_add(1, Ordering::Relaxed);
        });
        assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert_eq!(threads.free.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_query_does_not_wait_for_busy_threads() {
        let threads = QueryThreads::start(1).expect("a thread");
        let done = AtomicUsize::new(0);
        threads.run(2, &|_| {
            threads.run(4, &|_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(done.load(Ordering::Relaxed), 8);
    }
}
