//! `--scenario churn`: series that are new come all the time beside the load, each with one sample,
//! as those of short-lived jobs do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::acked_steps::AckedSteps;
use super::body::Template;
use super::fleet::LabelPairs;
use super::system::System;
use super::write::{Clock, WriteParams};
use crate::http1::Connection;
use crate::record::Recorder;

/// The name in results.
const WRITE_NEW: &str = "write_new";

/// Requests with new series in each second.
const REQUESTS_PER_SECOND: u32 = 20;

/// Parameters of the sender of new series.
pub(super) struct Churn {
    pub(super) system: System,
    pub(super) write_params: WriteParams,
    pub(super) acked_steps: Arc<AckedSteps>,
    pub(super) clock: Arc<Clock>,
    /// New series each second.
    pub(super) rate: u32,
}

impl Churn {
    /// Sends by a schedule until the clock ends.
    ///
    /// # Errors
    /// When a sample is refused or the connection is lost.
    pub(super) fn run(self) -> Result<Recorder> {
        let address = &self.system.address;
        let mut connection = Connection::open(&address.host)?;
        let mut recorder = Recorder::default();
        let series_per_request = self.rate / REQUESTS_PER_SECOND;
        let interval = Duration::from_secs(1) / REQUESTS_PER_SECOND;
        for request in 0_u32.. {
            // Made before it is due.
            let first = request * series_per_request;
            let series: Vec<_> = (first..first + series_per_request).map(new_series).collect();
            let mut template = Template::new(address, self.write_params.protocol, &series);
            let now_ms = self.write_params.fleet.step_ms(self.acked_steps.acknowledged());
            (0..series.len()).for_each(|index| template.set_sample(index, 1.0, now_ms));
            let due = self.clock.start + interval * request;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let begun = Instant::now();
            if self.clock.has_ended(begun) {
                break;
            }
            let (status, ()) = connection.exchange(template.request(), |_| ())?;
            ensure!(status / 100 == 2, "new series were refused with {status}");
            if self.clock.is_in_window(due) {
                let ended = Instant::now();
                let [due, begun, ended] =
                    [due, begun, ended].map(|moment| self.clock.offset(moment));
                recorder.record_success(WRITE_NEW, due, begun, ended);
            }
        }
        Ok(recorder)
    }
}

/// The labels of a series that has not been there before.
fn new_series(number: u32) -> LabelPairs {
    let job = number / 8;
    vec![
        ("__name__", "job_step_duration_seconds".to_owned()),
        ("cluster", "eu-0".to_owned()),
        ("env", "production".to_owned()),
        ("job", "batch".to_owned()),
        ("namespace", format!("team-{:02}", job % 20)),
        ("node", format!("node-{:04}", job % 60)),
        ("pod", format!("batch-{job:08x}")),
        ("service", "batch".to_owned()),
        ("step", (number % 8).to_string()),
        ("zone", "eu-west-1a".to_owned()),
    ]
}
