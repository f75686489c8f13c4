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
const EVERY: Duration = Duration::from_millis(100);

/// What was not seen at once is asked for again after this time.
const AGAIN: Duration = Duration::from_millis(2);

/// What is not seen by then is not seen.
const SEEN_MAX: Duration = Duration::from_secs(20);

/// Parameters of the probe.
pub(super) struct Probe {
    pub(super) system: System,
    pub(super) sending: WriteParams,
    pub(super) frontier: Arc<AckedSteps>,
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
        let mut template = Template::new(address, self.sending.protocol, &series);
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
            let now_ms = self.sending.fleet.step_ms(self.frontier.acknowledged());
            last_ms = now_ms.max(last_ms + 1);
            template.set(0, f64::from(number), last_ms);
            let (status, ()) = writer.exchange(template.request(), |_| ())?;
            ensure!(
                status / 100 == 2,
                "the probe's sample was refused with {status}"
            );
            let acknowledged = Instant::now();
            let seen = self.wait_for(&mut reader, number, last_ms, acknowledged)?;
            if self.clock.counts(acknowledged) {
                let [from, to] = [acknowledged, Instant::now()].map(|moment| self.clock.at(moment));
                if seen {
                    recorder.success(VISIBILITY, from, from, to)
                } else {
                    recorder.failure("sample not seen", from, from, to)
                }
            }
            std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
        }
        Ok(recorder)
    }

    /// Asks until the sample is in the answer, and says whether it was.
    fn wait_for(
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
            let sees = |body: &[u8]| String::from_utf8_lossy(body).contains(&value);
            if reader.exchange(&request, sees)? == (200, true) {
                return Ok(true);
            }
            // The load is over, or soon will be.
            if acknowledged.elapsed() > SEEN_MAX || self.clock.is_stopped() {
                return Ok(false);
            }
            std::thread::sleep(AGAIN);
        }
    }
}
