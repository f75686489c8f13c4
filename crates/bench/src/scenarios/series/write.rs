//! Senders: each has a connection and a range of series of its own, and sends their samples in the
//! order of time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use egret_bench_cli::Protocol;

use super::acked_steps::AckedSteps;
use super::body::{Template, WriteAddress};
use super::fleet::Fleet;
use super::shape::Shape;
use crate::http1::Connection;
use crate::record::Recorder;

/// The name of a write in results.
pub(super) const WRITE: &str = "write";

/// A refused request is sent again after this time, as Prometheus does first.
const RETRY_DELAY: Duration = Duration::from_millis(30);

/// A server that refuses for this long has failed.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Status codes after which a sender tries again.
const RETRIED_STATUSES: [u64; 4] = [429, 500, 502, 503];

/// Parameters of the writers.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteParams {
    pub(super) fleet: Fleet,
    pub(super) writers: u32,
    /// Samples in a request at most.
    pub(super) batch: u32,
    pub(super) protocol: Protocol,
}

impl WriteParams {
    /// The series of a writer.
    fn series_range(&self, writer: u32) -> Range<u32> {
        let bound = |number: u32| {
            let part = u64::from(self.fleet.series) * u64::from(number) / u64::from(self.writers);
            part as u32
        };
        bound(writer)..bound(writer + 1)
    }

    /// Steps that one request carries, where a writer has fewer series than a request has samples.
    pub(super) fn steps_per_request(&self) -> u64 {
        let series_max = self.fleet.series.div_ceil(self.writers);
        u64::from((self.batch / series_max).max(1))
    }
}

/// When the load runs and what of it counts.
#[derive(Debug)]
pub(super) struct Clock {
    /// Schedules count from here.
    pub(super) start: Instant,
    /// The window: what was to begin in it is recorded.
    pub(super) origin: Instant,
    pub(super) end: Instant,
    stopped: AtomicBool,
    /// When it was stopped before its end.
    stopped_at: OnceLock<Instant>,
}

impl Clock {
    /// Begins now, with a warm-up before the window.
    pub(super) fn new(warmup: Duration, window: Duration) -> Self {
        let begin = Instant::now();
        Self {
            start: begin,
            origin: begin + warmup,
            end: begin + warmup + window,
            stopped: AtomicBool::new(false),
            stopped_at: OnceLock::new(),
        }
    }

    /// Ends the load now.
    pub(super) fn stop(&self) {
        // The first one counts.
        let _ = self.stopped_at.set(Instant::now());
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped before its end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether nothing is to begin any more.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        now >= self.end || self.is_stopped()
    }

    /// Length of the window.
    pub(super) fn window(&self) -> Duration {
        let end = self.stopped_at.get().map_or(self.end, |stopped_at| self.end.min(*stopped_at));
        end.saturating_duration_since(self.origin)
    }

    /// From the window's begin.
    pub(super) fn offset(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.origin)
    }

    /// Whether what was to begin then is in the window.
    pub(super) fn is_in_window(&self, intended: Instant) -> bool {
        (self.origin..self.end).contains(&intended)
    }
}

/// Results of one sender.
#[derive(Default)]
pub(super) struct SenderResult {
    pub(super) recorder: Recorder,
    /// Acknowledged in the window.
    pub(super) samples: u64,
}

pub(super) struct Sender {
    number: u32,
    groups: Vec<SeriesGroup>,
    steps_per_request: u64,
    /// The first step that is not sent.
    next_step: u64,
    connection: Connection,
}

/// Series whose samples travel together.
struct SeriesGroup {
    template: Template,
    /// Of each series what it is worth and how long after a step's begin.
    series: Vec<(Shape, i64)>,
}

impl SeriesGroup {
    fn new(write_params: &WriteParams, address: &WriteAddress, range: Range<u32>) -> Self {
        let fleet = &write_params.fleet;
        let labels: Vec<_> = range.clone().map(|series| fleet.labels(series)).collect();
        let steps = write_params.steps_per_request() as usize;
        let labels: Vec<_> = std::iter::repeat_n(&labels, steps).flatten().cloned().collect();
        Self {
            template: Template::new(address, write_params.protocol, &labels),
            series: range.map(|series| (fleet.shape(series), fleet.shift_ms(series))).collect(),
        }
    }

    /// Puts in the samples of the steps from `first` on.
    fn fill(&mut self, fleet: &Fleet, first: u64, steps: u64) {
        let mut index = 0;
        for step in first..first + steps {
            let begin_ms = fleet.step_ms(step);
            for (shape, shift_ms) in &self.series {
                self.template.set_sample(index, shape.value_at(step), begin_ms + shift_ms);
                index += 1;
            }
        }
    }
}

/// When requests are due: the first at `begin`, then one each `interval`; without it, when the last
/// one ended.
#[derive(Clone, Copy)]
struct SendSchedule {
    begin: Instant,
    interval: Option<Duration>,
}

impl SendSchedule {
    /// Waits until a request is due and returns when that was.
    fn await_due(&self, number: u32) -> Instant {
        let Some(interval) = self.interval else {
            return Instant::now();
        };
        // Multiplied, not summed: rounding errors must not add up.
        let due = self.begin + interval.mul_f64(f64::from(number));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

impl Sender {
    /// Makes its requests and connects.
    ///
    /// # Errors
    /// If the connection cannot be established.
    pub(super) fn new(
        write_params: &WriteParams,
        address: &WriteAddress,
        number: u32,
    ) -> Result<Self> {
        let range = write_params.series_range(number);
        let length = range.end - range.start;
        let count = length.div_ceil(write_params.batch).max(1);
        let bound = |group: u32| {
            range.start + (u64::from(length) * u64::from(group) / u64::from(count)) as u32
        };
        let groups = (0..count)
            .map(|group| SeriesGroup::new(write_params, address, bound(group)..bound(group + 1)))
            .collect();
        Ok(Self {
            number,
            groups,
            steps_per_request: write_params.steps_per_request(),
            next_step: 0,
            connection: Connection::open(&address.host)?,
        })
    }

    /// Sends everything before a step, as fast as it is acknowledged.
    ///
    /// # Errors
    /// When the server refuses for good.
    pub(super) fn preload(
        &mut self,
        fleet: &Fleet,
        acked_steps: &AckedSteps,
        end_step: u64,
    ) -> Result<()> {
        while self.next_step < end_step && !acked_steps.is_abandoned() {
            acked_steps.await_others(self.next_step, || false);
            for group in 0..self.groups.len() {
                self.groups[group].fill(fleet, self.next_step, self.steps_per_request);
                self.send(group, |_| ())?;
            }
            self.advance_step(acked_steps);
        }
        Ok(())
    }

    /// Sends until the clock ends, or there is nothing left before `end_step`, which ends the load
    /// of all.
    ///
    /// # Errors
    /// When the server refuses for good.
    pub(super) fn run(
        mut self,
        write_params: &WriteParams,
        acked_steps: &AckedSteps,
        clock: &Arc<Clock>,
        rate: Option<f64>,
        end_step: u64,
    ) -> Result<SenderResult> {
        let mut result = SenderResult::default();
        let schedule = self.send_schedule(write_params, clock, rate);
        let operation = result.recorder.operation_index(WRITE);
        let mut number = 0;
        loop {
            acked_steps.await_others(self.next_step, || clock.has_ended(Instant::now()));
            if self.next_step + self.steps_per_request > end_step {
                clock.stop();
                return Ok(result);
            }
            for group in 0..self.groups.len() {
                self.groups[group].fill(
                    &write_params.fleet,
                    self.next_step,
                    self.steps_per_request,
                );
                let due = schedule.await_due(number);
                number += 1;
                let begun = Instant::now();
                if clock.has_ended(begun) {
                    return Ok(result);
                }
                let recorder = &mut result.recorder;
                self.send(group, |status| {
                    let now = clock.offset(Instant::now());
                    recorder.record_failure(
                        &format!("write {status}"),
                        clock.offset(due),
                        clock.offset(begun),
                        now,
                    );
                })?;
                let ended = Instant::now();
                if clock.is_in_window(due) {
                    let (due, begun) = (clock.offset(due), clock.offset(begun));
                    recorder.record_success_at(operation, due, begun, clock.offset(ended));
                }
                if clock.is_in_window(ended) {
                    result.samples += self.groups[group].template.samples() as u64;
                }
            }
            self.advance_step(acked_steps);
        }
    }

    fn send_schedule(
        &self,
        write_params: &WriteParams,
        clock: &Clock,
        rate: Option<f64>,
    ) -> SendSchedule {
        let samples: usize = self.groups.iter().map(|group| group.template.samples()).sum();
        let share =
            samples as f64 / self.steps_per_request as f64 / f64::from(write_params.fleet.series);
        let samples_per_request = samples as f64 / self.groups.len() as f64;
        let interval =
            rate.map(|rate| Duration::from_secs_f64(samples_per_request / (rate * share)));
        // Writers take turns instead of all sending at the same moment.
        let phase = f64::from(self.number) / f64::from(write_params.writers);
        SendSchedule {
            begin: clock.start + interval.map_or(Duration::ZERO, |gap| gap.mul_f64(phase)),
            interval,
        }
    }

    fn advance_step(&mut self, acked_steps: &AckedSteps) {
        self.next_step += self.steps_per_request;
        acked_steps.advance(self.number as usize, self.next_step);
    }

    /// Sends a request until it is acknowledged, and tells `on_refusal` each time it is not.
    fn send(&mut self, group: usize, mut on_refusal: impl FnMut(u64)) -> Result<()> {
        let begun = Instant::now();
        let request = self.groups[group].template.request();
        loop {
            let (status, said) = self.connection.exchange(request, |body| body.to_vec())?;
            if status / 100 == 2 {
                return Ok(());
            }
            if !RETRIED_STATUSES.contains(&status) || begun.elapsed() > RETRY_TIMEOUT {
                let text = String::from_utf8_lossy(&said);
                bail!("samples were refused with {status}: {}", text.trim());
            }
            on_refusal(status);
            std::thread::sleep(RETRY_DELAY);
        }
    }
}

#[cfg(test)]
mod tests;
