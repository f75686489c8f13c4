//! Signals between the measuring task and the thread that makes the load.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::steady::RateCounter;

/// Start, stop and end of a load's window. Moments are nanoseconds since `base`.
pub(super) struct Signals {
    base: Instant,
    window_start_ns: AtomicU64,
    window_end_ns: AtomicU64,
    stopped: AtomicBool,
    /// Cycles of the warm-up.
    pub(super) counter: RateCounter,
    /// The load has ended the window.
    pub(super) window_ended: Notify,
    /// Calls of an open loop are due.
    pub(super) calls_due: Notify,
}

impl Signals {
    /// Moments count from `base`.
    pub(super) fn new(base: Instant) -> Self {
        Self {
            base,
            window_start_ns: AtomicU64::new(u64::MAX),
            window_end_ns: AtomicU64::new(u64::MAX),
            stopped: AtomicBool::new(false),
            counter: RateCounter::default(),
            window_ended: Notify::new(),
            calls_due: Notify::new(),
        }
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.base.elapsed().as_nanos() as u64
    }

    /// The measured window; before it is known, one that is never reached.
    #[inline]
    pub(super) fn window(&self) -> Range<u64> {
        let start_ns = self.window_start_ns.load(Ordering::Acquire);
        start_ns..self.window_end_ns.load(Ordering::Acquire)
    }

    /// The window begins at `origin`, and lasts so long if it does not end otherwise.
    pub(super) fn open_window(&self, origin: Instant, length: Option<Duration>) {
        let start_ns = origin.saturating_duration_since(self.base).as_nanos() as u64;
        if let Some(lasts) = length {
            let end_ns = start_ns + lasts.as_nanos() as u64;
            self.window_end_ns.store(end_ns, Ordering::Release);
        }
        self.window_start_ns.store(start_ns, Ordering::Release);
    }

    /// The window ends now.
    pub(super) fn end_window(&self, now_ns: u64) {
        self.window_end_ns.fetch_min(now_ns, Ordering::AcqRel);
        self.window_ended.notify_one();
    }

    /// How long the window was, where it has ended.
    pub(super) fn window_length(&self) -> Duration {
        let window = self.window();
        Duration::from_nanos(window.end.saturating_sub(window.start))
    }

    /// Stops the load: its result is no longer needed.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.end_window(0);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
