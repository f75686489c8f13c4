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
use super::pipe::{Pipe, number};
use super::target::QueueTarget;
use crate::http1::response;
use crate::record::{Recorder, Recording, scalar};
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// Made and not counted before the first phase, which is warm-up enough for the second.
const WARMUP: Duration = Duration::from_secs(1);

/// A claim waits so long for a task, in milliseconds: far longer than one takes to come.
const WAIT_MS: u32 = 5_000;

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
    lasts: Duration,
}

/// Totals over all users.
#[derive(Default)]
struct Totals {
    recorder: Recorder,
    ledger: Ledger,
    made: u64,
    done: u64,
}

/// First as many enqueues as go, then as many whole cycles: that is the measurement.
pub(super) async fn measure(
    stage: &mut Stage,
    connections: u32,
    payload_bytes: u32,
    lasts: Duration,
) -> Result<Measurement> {
    let target = QueueTarget::of(stage)?;
    let (_, port) = target
        .host
        .rsplit_once(':')
        .context("the server has no port")?;
    let mut users = Users {
        port: port.parse().context("the server's port")?,
        token: target.token.clone(),
        queue: "rest-enqueue",
        connections,
        payload_bytes: payload_bytes as usize,
        origin: Instant::now() + WARMUP,
        lasts,
    };
    target.put_queue("rest-enqueue", None).await?;
    target.put_queue("rest", None).await?;
    stage.progress.say("enqueueing");
    let enqueued = run(users.clone(), Work::Enqueue).await?;

    stage
        .progress
        .say("enqueueing, claiming and completing tasks");
    users.queue = "rest";
    let window = stage.open_window(Some(lasts))?;
    users.origin = window.origin();
    let mut watch = target.watch();
    let cycled = run(users, Work::Cycle).await?;
    watch.look();
    let observed = window.close().await?;

    let rate = |done: u64| {
        let rate = done as f64 / lasts.as_secs_f64().max(1e-9);
        scalar("1/s", Better::Higher, rate, done)
    };
    let count = |value: u64| {
        let accepted = cycled.ledger.accepted();
        scalar("count", Better::Lower, value as f64, accepted)
    };
    let each = PerCycle::of(cycled.done);
    let mut metrics = vec![
        ("cycles_per_second", rate(cycled.done)),
        ("enqueues_per_second", rate(enqueued.done)),
        ("lost", count(cycled.ledger.lost())),
        ("duplicated", count(cycled.ledger.duplicated)),
        (
            "server_cpu_us_per_cycle",
            each.micros(observed.usage.system, Better::Lower),
        ),
        (
            "generator_cpu_us_per_cycle",
            each.micros(observed.usage.own, Better::Neither),
        ),
    ];
    metrics.extend(watch.metrics());
    let named = metrics
        .into_iter()
        .map(|(name, metric)| (name.to_owned(), metric));
    let metrics = named.collect();
    let mut measurement = Measurement::new(observed, Recording::merge([cycled.recorder]));
    measurement.metrics = metrics;
    Ok(measurement)
}

/// Runs the users on a thread of their own.
async fn run(users: Users, work: Work) -> Result<Totals> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start an event loop");
        let tally =
            runtime.and_then(|runtime| LocalSet::new().block_on(&runtime, all(users, work)));
        // The receiver may be gone: the result is then not needed.
        let _ = tell.send(tally);
    });
    told.await.context("the users' thread has ended")?
}

async fn all(users: Users, work: Work) -> Result<Totals> {
    let tally = Rc::new(RefCell::new(Totals::default()));
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..users.connections {
        let user = User {
            pipe: Pipe::open(users.port).await?,
            users: users.clone(),
            request: Vec::new(),
        };
        set.spawn_local(user.run(work, tally.clone()));
    }
    while let Some(ended) = set.join_next().await {
        ended.context("a user has failed")??;
    }
    Ok(tally.take())
}

/// One connection and its requests, one at a time.
struct User {
    pipe: Pipe,
    users: Users,
    request: Vec<u8>,
}

impl User {
    async fn run(mut self, work: Work, tally: Rc<RefCell<Totals>>) -> Result<()> {
        let origin = self.users.origin;
        let at = |moment: Instant| moment.saturating_duration_since(origin);
        loop {
            let begun = Instant::now();
            if at(begun) >= self.users.lasts {
                return Ok(());
            }
            let task = {
                let mut tally = tally.borrow_mut();
                tally.made += 1;
                tally.made - 1
            };
            self.enqueue(task).await?;
            tally.borrow_mut().ledger.accept(task);
            let enqueued = Instant::now();
            if work == Work::Cycle {
                let claimed = self.claim().await?;
                let handed = Instant::now();
                tally.borrow_mut().ledger.hand(claimed.task);
                self.complete(&claimed).await?;
                let mut tally = tally.borrow_mut();
                tally.ledger.complete(claimed.task);
                if begun >= origin {
                    let ended = Instant::now();
                    for (name, from, to) in [
                        (ENQUEUE, begun, enqueued),
                        (CLAIM_TO_COMPLETE, handed, ended),
                        (END_TO_END, begun, ended),
                    ] {
                        tally.recorder.success(name, at(from), at(from), at(to));
                    }
                }
            }
            let ended = Instant::now();
            let counts = ended >= origin && at(ended) < self.users.lasts;
            tally.borrow_mut().done += u64::from(counts);
        }
    }

    async fn enqueue(&mut self, task: u64) -> Result<()> {
        let width = self.users.payload_bytes;
        let body = format!("{{\"payload\":\"{task:0width$}\"}}");
        let path = format!("/v1/queues/{}/tasks", self.users.queue);
        self.post(&path, &body, 201, |_| Ok(())).await
    }

    async fn claim(&mut self) -> Result<LeasedTask> {
        let body = format!("{{\"lease_ms\":300000,\"wait_ms\":{WAIT_MS}}}");
        let path = format!("/v1/queues/{}/claim", self.users.queue);
        let mut claimed = None;
        self.post(&path, &body, 200, |answer| {
            let text = std::str::from_utf8(answer).context("the response is not UTF-8")?;
            let of = |name: &str| field(text, name).with_context(|| format!("no {name} in {text}"));
            claimed = Some(LeasedTask {
                id: of("id")?.to_owned(),
                lease: of("lease")?.to_owned(),
                task: number(of("payload")?.as_bytes())?,
            });
            Ok(())
        })
        .await?;
        claimed.context("no task arrived")
    }

    async fn complete(&mut self, claimed: &LeasedTask) -> Result<()> {
        let body = format!("{{\"lease\":\"{}\",\"result\":\"ok\"}}", claimed.lease);
        let path = format!("/v1/tasks/{}/complete", claimed.id);
        self.post(&path, &body, 204, |_| Ok(())).await
    }

    async fn post(
        &mut self,
        path: &str,
        body: &str,
        expected: u64,
        mut read: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.request.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.users.token,
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body.as_bytes());
        let take = |bytes: &[u8]| {
            let Some(response) = response(bytes)? else {
                return Ok(None);
            };
            ensure!(
                response.status == expected,
                "POST {path} returned {}: {}",
                response.status,
                String::from_utf8_lossy(&response.body)
            );
            read(&response.body)?;
            Ok(Some(response.used()))
        };
        self.pipe.ask(&self.request, take).await
    }
}

/// A task that is held.
struct LeasedTask {
    id: String,
    lease: String,
    task: u64,
}

/// The value of a text field whose name occurs once before it and that has nothing to be escaped.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let key = format!("\"{name}\":\"");
    let begin = json.find(&key)? + key.len();
    let end = json[begin..].find('"')?;
    Some(&json[begin..begin + end])
}

#[cfg(test)]
mod tests;
