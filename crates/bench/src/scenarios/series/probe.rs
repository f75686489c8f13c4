//! How long after its acknowledgement a sample is seen: one series of the probe's own, written and
//! asked for in turns while the load runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::acked_steps::AckedSteps;
use super::body::Template;
use super::system::System;
use super::write::{Clock, WriteParams};
use crate::http1::Connection;
use crate::record::Recorder;

/// The name in results.
const VISIBILITY: &str = "visibility";

const METRIC: &str = "egret_bench_probe";

/// From one probe to the next.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// What was not seen at once is asked for again after this time.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// What is not seen by then is not seen.
const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(20);

/// Parameters of the probe.
pub(super) struct Probe {
    pub(super) system: System,
    pub(super) write_params: WriteParams,
    pub(super) acked_steps: Arc<AckedSteps>,
    pub(super) clock: Arc<Clock>,
}

impl Probe {
    /// Probes until the clock ends.
    ///
    /// # Errors
    /// When a sample is refused or the connection is lost.
    pub(super) fn run(self) -> Result<Recorder> {
        let address = &self.system.address;
        let series = [vec![("__name__", METRIC.to_owned())]];
        let mut template = Template::new(address, self.write_params.protocol, &series);
        let mut writer = Connection::open(&address.host)?;
        let mut reader = Connection::open(&address.host)?;
        let mut recorder = Recorder::default();
        let mut last_ms = 0;
        for number in 1_u32.. {
            let begun = Instant::now();
            if self.clock.has_ended(begun) {
                break;
            }
            // Among the samples of the load, which the server takes.
            let now_ms = self.write_params.fleet.step_ms(self.acked_steps.acknowledged());
            last_ms = now_ms.max(last_ms + 1);
            template.set_sample(0, f64::from(number), last_ms);
            let (status, ()) = writer.exchange(template.request(), |_| ())?;
            ensure!(status / 100 == 2, "the probe's sample was refused with {status}");
            let acknowledged = Instant::now();
            let is_visible = self.await_visible(&mut reader, number, last_ms, acknowledged)?;
            if self.clock.is_in_window(acknowledged) {
                let [from, to] =
                    [acknowledged, Instant::now()].map(|moment| self.clock.offset(moment));
                if is_visible {
                    recorder.record_success(VISIBILITY, from, from, to)
                } else {
                    recorder.record_failure("sample not seen", from, from, to)
                }
            }
            std::thread::sleep(PROBE_INTERVAL.saturating_sub(begun.elapsed()));
        }
        Ok(recorder)
    }

    /// Asks until the sample is in the answer, and says whether it was.
    fn await_visible(
        &self,
        reader: &mut Connection,
        number: u32,
        at_ms: i64,
        acknowledged: Instant,
    ) -> Result<bool> {
        let seconds = at_ms as f64 / 1_000.0;
        let path = format!("{}/query?query={METRIC}&time={seconds}", self.system.api);
        let request = self.system.request("GET", &path);
        let value = format!(",\"{number}\"]");
        loop {
            let contains_value = |body: &[u8]| String::from_utf8_lossy(body).contains(&value);
            if reader.exchange(&request, contains_value)? == (200, true) {
                return Ok(true);
            }
            // The load is over, or soon will be.
            if acknowledged.elapsed() > VISIBILITY_TIMEOUT || self.clock.is_stopped() {
                return Ok(false);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}
