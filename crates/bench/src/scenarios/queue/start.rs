//! `--scenario start`: from the start of a server that has no data to its first acknowledged task.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Method;
use serde_json::json;

use crate::private::PrivateServer;
use crate::record::{Recorder, Recording};
use crate::scenario::Measurement;
use crate::stage::Stage;

/// Starts of one measurement.
const START_COUNT: u32 = 20;

/// A start that takes longer is a failure.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long until it is tried again whether the server answers.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Starts so many servers on empty directories, one after the other.
pub(super) async fn measure(stage: &mut Stage) -> Result<Measurement> {
    let window = stage.open_window(None)?;
    let origin = window.origin();
    let mut recorder = Recorder::default();
    for number in 1..=START_COUNT {
        stage.progress.show(format!("starting server {number} of {START_COUNT}"));
        // The one before has ended before the next begins.
        stage.private_server = None;
        let begun = Instant::now();
        let mut private = PrivateServer::spawn(&stage.program, &stage.settings)?;
        enqueue_first_task(&mut private, begun).await?;
        let acknowledged = Instant::now();
        private.wait_until_ready().await?;
        let ready = Instant::now();
        let offset = |moment: Instant| moment.saturating_duration_since(origin);
        recorder.record_success("first_task", offset(begun), offset(begun), offset(acknowledged));
        recorder.record_success("ready", offset(begun), offset(begun), offset(ready));
        stage.server = Some(private.server().clone());
        stage.private_server = Some(private);
    }
    let observed = window.close().await?;
    Ok(Measurement::new(observed, Recording::merge([recorder])))
}

/// Makes a queue and a task in it, as soon as that can be done.
async fn enqueue_first_task(private: &mut PrivateServer, begun: Instant) -> Result<()> {
    loop {
        // Its token is there before its door is open.
        let result = match private.authenticate() {
            Ok(()) => enqueue(private).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => return Ok(()),
            Err(error) if begun.elapsed() > START_TIMEOUT => {
                bail!("no task was acknowledged after a start: {error:#}")
            }
            Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
        }
    }
}

async fn enqueue(private: &PrivateServer) -> Result<()> {
    let server = private.server();
    let queue = server.request(Method::PUT, "v1/queues/first").json(&json!({}));
    server.send(queue).await?;
    let task = json!({"payload": "00000000000000"});
    server.post("v1/queues/first/tasks", &task).await?;
    Ok(())
}
