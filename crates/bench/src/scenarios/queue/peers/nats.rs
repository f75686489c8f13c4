//! NATS JetStream, a work-queue stream with a pull consumer:
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail, ensure};
use egret_bench_cli::Durability;

use super::super::broker::{Broker, Events};
use super::super::pipe::{Pipe, parse_number, split_line};
use crate::refusal;

/// The version from which on it syncs before it acknowledges, where it is asked to.
const SYNC_VERSION_MIN: (u64, u64) = (2, 10);

/// Refuses a durability that this version does not have.
pub(super) fn check_version(durability: Durability, version: &str) -> Result<()> {
    let digits = version.rsplit('v').next().unwrap_or_default();
    let mut parts = digits.split('.').map(|part| part.parse().unwrap_or(0));
    let parsed_version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if durability == Durability::None || parsed_version >= SYNC_VERSION_MIN {
        return Ok(());
    }
    Err(refusal::usage(format!(
        "--peer nats: {version} has no `sync_interval`, so it does not sync before it acknowledges: install 2.10 or newer, or measure with --durability none"
    )))
}

pub(super) fn add_arguments(
    command: &mut Command,
    path: &Path,
    port: u16,
    durability: Durability,
) -> Result<()> {
    let sync = match durability {
        Durability::Fsync => "sync_interval: always",
        Durability::Interval => "sync_interval: \"100ms\"",
        Durability::None => "",
    };
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\"\n{sync} }}\n",
        path.display()
    );
    let file = path.join("nats.conf");
    fs::write(&file, text).context("write the configuration of nats-server")?;
    command.arg("-c").arg(file);
    Ok(())
}

/// A producer's connection and a worker's.
pub(super) struct Nats {
    producer: Pipe,
    worker: Pipe,
    next_task: u64,
    credits: u32,
    completions: u64,
}

const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"lang\":\"egret-bench\",\"version\":\"1\"}\r\n";

/// The worker's subscriptions: to its tasks, and to answers to its acknowledgements.
const TASK_SUBSCRIPTION: &[u8] = b"1";
const ACK_SUBSCRIPTION: &[u8] = b"2";

const STREAM_CONFIG: &str =
    r#"{"name":"T","subjects":["t"],"retention":"workqueue","storage":"file","num_replicas":1}"#;

const CONSUMER_CONFIG: &str = r#"{"stream_name":"T","config":{"durable_name":"C","ack_policy":"explicit","ack_wait":600000000000,"max_ack_pending":1000000,"max_waiting":100000}}"#;

impl Nats {
    pub(super) async fn open(port: u16) -> Result<Self> {
        let mut producer = Pipe::open(port).await?;
        let hello = format!("{CONNECT}SUB p.* 1\r\nPING\r\n");
        await_pong(&mut producer, &hello).await?;
        for (api, body) in [
            ("$JS.API.STREAM.CREATE.T", STREAM_CONFIG),
            ("$JS.API.CONSUMER.DURABLE.CREATE.T.C", CONSUMER_CONFIG),
        ] {
            let request = format!("PUB {api} p.0 {}\r\n{body}\r\n", body.len());
            let parse = |bytes: &[u8]| {
                let Some((message, used)) = parse_message(bytes)? else {
                    return Ok(None);
                };
                let text = String::from_utf8_lossy(message.body).into_owned();
                ensure!(!text.contains("\"error\""), "nats refused: {text}");
                Ok(Some(used))
            };
            producer.exchange(request.as_bytes(), parse).await?;
        }
        let mut worker = Pipe::open(port).await?;
        let hello = format!("{CONNECT}SUB w 1\r\nSUB a.* 2\r\nPING\r\n");
        await_pong(&mut worker, &hello).await?;
        Ok(Self { producer, worker, next_task: 0, credits: 0, completions: 0 })
    }
}

async fn await_pong(pipe: &mut Pipe, command: &str) -> Result<()> {
    let mut has_pong = false;
    let mut ask = command.as_bytes();
    while !has_pong {
        let parse = |bytes: &[u8]| {
            let Some((line, used)) = split_line(bytes) else {
                return Ok(None);
            };
            ensure!(!line.starts_with(b"-ERR"), "nats refused: {}", String::from_utf8_lossy(line));
            has_pong |= line == b"PONG";
            Ok(Some(used))
        };
        pipe.exchange(std::mem::take(&mut ask), parse).await?;
    }
    Ok(())
}

impl Broker for Nats {
    fn enqueue(&mut self, payload: &[u8]) {
        let head = format!("PUB t p.{} {}\r\n", self.next_task, payload.len());
        self.next_task += 1;
        self.producer.outbox.extend_from_slice(head.as_bytes());
        self.producer.outbox.extend_from_slice(payload);
        self.producer.outbox.extend_from_slice(b"\r\n");
    }

    fn add_credits(&mut self, credits: u32) {
        self.credits += credits;
    }

    fn complete(&mut self, handle: &[u8]) {
        self.worker.outbox.extend_from_slice(b"PUB ");
        self.worker.outbox.extend_from_slice(handle);
        let tail = format!(" a.{} 4\r\n+ACK\r\n", self.completions);
        self.completions += 1;
        self.worker.outbox.extend_from_slice(tail.as_bytes());
    }

    fn poll(&mut self, context: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>> {
        if self.credits > 0 {
            let body = format!("{{\"batch\":{},\"expires\":600000000000}}", self.credits);
            self.credits = 0;
            let pull = format!("PUB $JS.API.CONSUMER.MSG.NEXT.T.C w {}\r\n{body}\r\n", body.len());
            self.worker.outbox.extend_from_slice(pull.as_bytes());
        }
        let (mut has_ping, mut worker_has_ping) = (false, false);
        let produced = self.producer.poll(context, |bytes| {
            let Some((message, used)) = parse_message(bytes)? else {
                return Ok(None);
            };
            has_ping |= message.subject.is_empty() && message.body == PING;
            if let Some(number) = message.subject.strip_prefix(b"p.") {
                let number = self::parse_number(number)?;
                if message.body.starts_with(b"{\"error\"") {
                    events.refused_enqueues.push((number, "refused".to_owned()))
                } else {
                    events.enqueued.push(number)
                }
            }
            Ok(Some(used))
        })?;
        let worked = self.worker.poll(context, |bytes| {
            let Some((message, used)) = parse_message(bytes)? else {
                return Ok(None);
            };
            worker_has_ping |= message.subject.is_empty() && message.body == PING;
            // A task comes under the subject it was made with, so the subscription tells.
            match message.subscription {
                TASK_SUBSCRIPTION => events.push_delivery(message.body, message.reply)?,
                ACK_SUBSCRIPTION => {
                    let number = message.subject.strip_prefix(b"a.");
                    let number = number.context("an acknowledgement has no number")?;
                    events.completed.push(self::parse_number(number)?);
                }
                _ => {}
            }
            Ok(Some(used))
        })?;
        for (pinged, pipe) in [(has_ping, &mut self.producer), (worker_has_ping, &mut self.worker)]
        {
            if pinged {
                pipe.outbox.extend_from_slice(b"PONG\r\n");
            }
        }
        if produced.is_ready() || worked.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

/// The server checks that the client is alive; see [`NatsMessage`].
const PING: &[u8] = b"PING";

/// A message, or a line that is none: then without a subject.
struct NatsMessage<'a> {
    subject: &'a [u8],
    subscription: &'a [u8],
    reply: &'a [u8],
    body: &'a [u8],
}

/// A message and its length; `None` while it is not whole.
fn parse_message(bytes: &[u8]) -> Result<Option<(NatsMessage<'_>, usize)>> {
    let Some((head, used)) = split_line(bytes) else {
        return Ok(None);
    };
    let Some(rest) = head.strip_prefix(b"MSG ") else {
        if head.starts_with(b"-ERR") || head.starts_with(b"HMSG") {
            bail!("nats answered {}", String::from_utf8_lossy(head));
        }
        let control_line = NatsMessage { subject: b"", subscription: b"", reply: b"", body: head };
        return Ok(Some((control_line, used)));
    };
    // Subject, subscription, where to reply if anywhere, size.
    let words: Vec<&[u8]> = rest.split(|byte| *byte == b' ').collect();
    let (subject, subscription, reply, size) = match words[..] {
        [subject, subscription, size] => (subject, subscription, &b""[..], size),
        [subject, subscription, reply, size] => (subject, subscription, reply, size),
        _ => bail!("nats answered {}", String::from_utf8_lossy(head)),
    };
    let size = parse_number(size)? as usize;
    if bytes.len() < used + size + 2 {
        return Ok(None);
    }
    let body = &bytes[used..used + size];
    let message = NatsMessage { subject, subscription, reply, body };
    Ok(Some((message, used + size + 2)))
}

#[cfg(test)]
mod tests;
