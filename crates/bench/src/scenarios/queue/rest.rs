//! `--scenario rest`: the same cycle by plain requests, over connections that are kept alive.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::cycle::{CLAIM_TO_COMPLETE, END_TO_END, ENQUEUE};
use super::figures::PerCycle;
use super::ledger::Ledger;
use super::pipe::{Pipe, parse_number};
use super::target::QueueTarget;
use crate::http1::parse_response;
use crate::record::{Recorder, Recording, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// Made and not counted before the first phase, which is warm-up enough for the second.
const WARMUP: Duration = Duration::from_secs(1);

/// A claim waits so long for a task, in milliseconds: far longer than one takes to come.
const CLAIM_WAIT_MS: u32 = 5_000;

/// Operation that the users repeat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Enqueue,
    Cycle,
}

/// Connections of the users, and times of the load.
#[derive(Clone, Debug)]
struct Users {
    port: u16,
    token: String,
    queue: &'static str,
    connections: u32,
    payload_bytes: usize,
    /// From when on it counts, and until when requests begin.
    origin: Instant,
    duration: Duration,
}

/// Totals over all users.
#[derive(Default)]
struct Totals {
    recorder: Recorder,
    ledger: Ledger,
    enqueued_count: u64,
    finished_count: u64,
}

/// First as many enqueues as go, then as many whole cycles: that is the measurement.
pub(super) async fn measure(
    stage: &mut Stage,
    connections: u32,
    payload_bytes: u32,
    duration: Duration,
) -> Result<Measurement> {
    let target = QueueTarget::from_stage(stage)?;
    let (_, port) = target.host.rsplit_once(':').context("the server has no port")?;
    let mut users = Users {
        port: port.parse().context("the server's port")?,
        token: target.token.clone(),
        queue: "rest-enqueue",
        connections,
        payload_bytes: payload_bytes as usize,
        origin: Instant::now() + WARMUP,
        duration,
    };
    target.put_queue("rest-enqueue", None).await?;
    target.put_queue("rest", None).await?;
    stage.progress.show("enqueueing");
    let enqueue_totals = run_users(users.clone(), Work::Enqueue).await?;

    stage.progress.show("enqueueing, claiming and completing tasks");
    users.queue = "rest";
    let window = stage.open_window(Some(duration))?;
    users.origin = window.origin();
    let mut sampler = target.resource_sampler();
    let cycle_totals = run_users(users, Work::Cycle).await?;
    sampler.sample();
    let observed = window.close().await?;

    let rate = |finished: u64| {
        let rate = finished as f64 / duration.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, finished)
    };
    let count = |value: u64| {
        let accepted = cycle_totals.ledger.accepted();
        scalar("count", Better::Lower, value as f64, accepted)
    };
    let per_cycle = PerCycle::new(cycle_totals.finished_count);
    let mut metrics = vec![
        ("cycles_per_second", rate(cycle_totals.finished_count)),
        ("enqueues_per_second", rate(enqueue_totals.finished_count)),
        ("lost", count(cycle_totals.ledger.lost())),
        ("duplicated", count(cycle_totals.ledger.duplicated)),
        ("server_cpu_us_per_cycle", per_cycle.micros(observed.usage.system, Better::Lower)),
        ("generator_cpu_us_per_cycle", per_cycle.micros(observed.usage.own, Better::Neither)),
    ];
    metrics.extend(sampler.metrics());
    let named = metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric));
    let metrics = named.collect();
    let mut measurement = Measurement::new(observed, Recording::merge([cycle_totals.recorder]));
    measurement.metrics = metrics;
    Ok(measurement)
}

/// Runs the users on a thread of their own.
async fn run_users(users: Users, work: Work) -> Result<Totals> {
    let (totals_sender, totals_receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start an event loop");
        let totals =
            runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, run_all(users, work)));
        // The receiver may be gone: the result is then not needed.
        let _ = totals_sender.send(totals);
    });
    totals_receiver.await.context("the users' thread has ended")?
}

async fn run_all(users: Users, work: Work) -> Result<Totals> {
    let totals = Rc::new(RefCell::new(Totals::default()));
    let mut user_tasks = tokio::task::JoinSet::new();
    for _ in 0..users.connections {
        let user =
            User { pipe: Pipe::open(users.port).await?, users: users.clone(), request: Vec::new() };
        user_tasks.spawn_local(user.run(work, totals.clone()));
    }
    while let Some(result) = user_tasks.join_next().await {
        result.context("a user has failed")??;
    }
    Ok(totals.take())
}

/// One connection and its requests, one at a time.
struct User {
    pipe: Pipe,
    users: Users,
    request: Vec<u8>,
}

impl User {
    async fn run(mut self, work: Work, totals: Rc<RefCell<Totals>>) -> Result<()> {
        let origin = self.users.origin;
        let offset = |moment: Instant| moment.saturating_duration_since(origin);
        loop {
            let begun = Instant::now();
            if offset(begun) >= self.users.duration {
                return Ok(());
            }
            let task = {
                let mut tally = totals.borrow_mut();
                tally.enqueued_count += 1;
                tally.enqueued_count - 1
            };
            self.enqueue(task).await?;
            totals.borrow_mut().ledger.accept(task);
            let enqueued = Instant::now();
            if work == Work::Cycle {
                let leased_task = self.claim().await?;
                let delivered = Instant::now();
                totals.borrow_mut().ledger.deliver(leased_task.task);
                self.complete(&leased_task).await?;
                let mut tally = totals.borrow_mut();
                tally.ledger.complete(leased_task.task);
                if begun >= origin {
                    let ended = Instant::now();
                    for (name, from, to) in [
                        (ENQUEUE, begun, enqueued),
                        (CLAIM_TO_COMPLETE, delivered, ended),
                        (END_TO_END, begun, ended),
                    ] {
                        tally.recorder.record_success(name, offset(from), offset(from), offset(to));
                    }
                }
            }
            let ended = Instant::now();
            let is_in_window = ended >= origin && offset(ended) < self.users.duration;
            totals.borrow_mut().finished_count += u64::from(is_in_window);
        }
    }

    async fn enqueue(&mut self, task: u64) -> Result<()> {
        let width = self.users.payload_bytes;
        let body = format!("{{\"payload\":\"{task:0width$}\"}}");
        let path = format!("/v1/queues/{}/tasks", self.users.queue);
        self.post(&path, &body, 201, |_| Ok(())).await
    }

    async fn claim(&mut self) -> Result<LeasedTask> {
        let body = format!("{{\"lease_ms\":300000,\"wait_ms\":{CLAIM_WAIT_MS}}}");
        let path = format!("/v1/queues/{}/claim", self.users.queue);
        let mut leased_task = None;
        self.post(&path, &body, 200, |answer| {
            let text = std::str::from_utf8(answer).context("the response is not UTF-8")?;
            let required_field = |name: &str| {
                json_string_field(text, name).with_context(|| format!("no {name} in {text}"))
            };
            leased_task = Some(LeasedTask {
                id: required_field("id")?.to_owned(),
                lease: required_field("lease")?.to_owned(),
                task: parse_number(required_field("payload")?.as_bytes())?,
            });
            Ok(())
        })
        .await?;
        leased_task.context("no task arrived")
    }

    async fn complete(&mut self, leased_task: &LeasedTask) -> Result<()> {
        let body = format!("{{\"lease\":\"{}\",\"result\":\"ok\"}}", leased_task.lease);
        let path = format!("/v1/tasks/{}/complete", leased_task.id);
        self.post(&path, &body, 204, |_| Ok(())).await
    }

    async fn post(
        &mut self,
        path: &str,
        body: &str,
        expected: u64,
        mut on_body: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.request.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.users.token,
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body.as_bytes());
        let parse = |bytes: &[u8]| {
            let Some(response) = parse_response(bytes)? else {
                return Ok(None);
            };
            ensure!(
                response.status == expected,
                "POST {path} returned {}: {}",
                response.status,
                String::from_utf8_lossy(&response.body)
            );
            on_body(&response.body)?;
            Ok(Some(response.total_length()))
        };
        self.pipe.exchange(&self.request, parse).await
    }
}

/// A task that is held.
struct LeasedTask {
    id: String,
    lease: String,
    task: u64,
}

/// The value of a text field whose name occurs once before it and that has nothing to be escaped.
fn json_string_field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\":\"");
    let begin = json.find(&key)? + key.len();
    let end = json[begin..].find('"')?;
    Some(&json[begin..begin + end])
}

#[cfg(test)]
mod tests;
