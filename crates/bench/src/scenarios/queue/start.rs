//! `--scenario start`: from the start of a server that has no data to its first acknowledged task.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use serde_json::json;

use crate::private::Private;
use crate::record::{Recorder, Recording};
use crate::scenario::Measurement;
use crate::stage::Stage;

/// Starts of one measurement.
const STARTS: u32 = 20;

/// A start that takes longer is a failure.
const START_MAX: Duration = Duration::from_secs(60);

/// How long until it is tried again whether the server answers.
const RETRY: Duration = Duration::from_millis(1);

/// Starts so many servers on empty directories, one after the other.
pub(super) async fn measure(stage: &mut Stage) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let origin = window.origin();
    let mut recorder = Recorder::default();
    for number in 1..=STARTS {
        stage
            .progress
            .say(format!("starting server {number} of {STARTS}"));
        // The one before has ended before the next begins.
        stage.private = None;
        let begun = Instant::now();
        let mut private = Private::begin(&stage.program, &stage.settings)?;
        first_task(&mut private, begun).await?;
        let acknowledged = Instant::now();
        private.wait_until_ready().await?;
        let ready = Instant::now();
        let at = |moment: Instant| moment.saturating_duration_since(origin);
        recorder.success("first_task", at(begun), at(begun), at(acknowledged));
        recorder.success("ready", at(begun), at(begun), at(ready));
        stage.server = Some(private.server().clone());
        stage.private = Some(private);
    }
    let observed = window.close().await?;
    Ok(Measurement::new(observed, Recording::merge([recorder])))
}

/// Makes a queue and a task in it, as soon as that can be done.
async fn first_task(private: &mut Private, begun: Instant) -> Result<()> {
    loop {
        // Its token is there before its door is open.
        let made = match private.enter() {
            Ok(()) => enqueue(private).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > START_MAX => {
                bail!("no task was acknowledged after a start: {error:#}")
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn enqueue(private: &Private) -> Result<()> {
    let server = private.server();
    let queue = server
        .request(Method::PUT, "v1/queues/first")
        .json(&json!({}));
    server.send(queue).await?;
    let task = json!({"payload": "00000000000000"});
    server.post("v1/queues/first/tasks", &task).await?;
    Ok(())
}
