//! beanstalkd: <https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt>.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail};
use egret_bench_cli::Durability;

use super::super::broker::{Broker, Events};
use super::super::pipe::{Pipe, line, number};

pub(super) fn arguments(command: &mut Command, path: &Path, port: u16, durability: Durability) {
    command
        .args(["-l", "127.0.0.1", "-p", &port.to_string()])
        .arg("-b")
        .arg(path);
    match durability {
        Durability::Fsync => command.args(["-f", "0"]),
        Durability::Interval => command.args(["-f", "100"]),
        Durability::None => command.arg("-F"),
    };
}

/// A producer's connection and a worker's.
///
/// A `reserve` that waits holds up everything behind it on its connection. So the worker asks for
/// what is there already, and waits only when there is nothing and everything it holds is deleted.
pub(super) struct Beanstalkd {
    producer: Pipe,
    worker: Pipe,
    made: u64,
    credits: u32,
    deletes: VecDeque<u64>,
    completions: u64,
    /// Reserves that are not answered, and how many of this round were given a task.
    asked: u32,
    given: u32,
    /// How many the round before was given.
    given_before: u32,
    waits: bool,
}

impl Beanstalkd {
    pub(super) async fn open(port: u16) -> Result<Self> {
        Ok(Self {
            producer: Pipe::open(port).await?,
            worker: Pipe::open(port).await?,
            made: 0,
            credits: 0,
            deletes: VecDeque::new(),
            completions: 0,
            asked: 0,
            given: 0,
            given_before: 1,
            waits: false,
        })
    }

    fn ask(&mut self) {
        if self.asked > 0 || self.credits == 0 {
            return;
        }
        if self.given_before == 0 && self.deletes.is_empty() {
            self.worker.outbox.extend_from_slice(b"reserve\r\n");
            self.waits = true;
            self.asked = 1;
        } else if self.given_before > 0 {
            // Twice what there was, so that it finds out soon that there is more.
            self.asked = (self.given_before * 2).min(self.credits);
            for _ in 0..self.asked {
                self.worker
                    .outbox
                    .extend_from_slice(b"reserve-with-timeout 0\r\n");
            }
        }
        self.given = 0;
    }
}

impl Broker for Beanstalkd {
    fn enqueue(&mut self, payload: &[u8]) {
        let head = format!("put 0 0 600 {}\r\n", payload.len());
        self.producer.outbox.extend_from_slice(head.as_bytes());
        self.producer.outbox.extend_from_slice(payload);
        self.producer.outbox.extend_from_slice(b"\r\n");
    }

    fn take(&mut self, credits: u32) {
        self.credits += credits;
    }

    fn complete(&mut self, handle: &[u8]) {
        self.worker.outbox.extend_from_slice(b"delete ");
        self.worker.outbox.extend_from_slice(handle);
        self.worker.outbox.extend_from_slice(b"\r\n");
        self.deletes.push_back(self.completions);
        self.completions += 1;
    }

    fn poll(&mut self, context: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>> {
        self.ask();
        let made = &mut self.made;
        let produced = self.producer.poll(context, |bytes| {
            let Some((line, length)) = line(bytes) else {
                return Ok(None);
            };
            if !line.starts_with(b"INSERTED ") {
                bail!("beanstalkd answered {}", String::from_utf8_lossy(line));
            }
            events.enqueued.push(*made);
            *made += 1;
            Ok(Some(length))
        })?;
        let (asked, given) = (&mut self.asked, &mut self.given);
        let (credits, deletes) = (&mut self.credits, &mut self.deletes);
        let worked = self.worker.poll(context, |bytes| {
            let Some((line, length)) = line(bytes) else {
                return Ok(None);
            };
            if let Some(rest) = line.strip_prefix(b"RESERVED ") {
                let mut words = rest.split(|byte| *byte == b' ');
                let id = words.next().unwrap_or_default();
                let size = number(words.next().unwrap_or_default())? as usize;
                let Some(payload) = bytes.get(length..length + size) else {
                    return Ok(None);
                };
                if bytes.len() < length + size + 2 {
                    return Ok(None);
                }
                events.hand(payload, id)?;
                (*asked, *given, *credits) = (*asked - 1, *given + 1, *credits - 1);
                return Ok(Some(length + size + 2));
            }
            match line {
                b"TIMED_OUT" => *asked -= 1,
                b"DELETED" => {
                    let number = deletes.pop_front().context("nothing was to be deleted")?;
                    events.completed.push(number);
                }
                other => bail!("beanstalkd answered {}", String::from_utf8_lossy(other)),
            }
            Ok(Some(length))
        })?;
        if self.asked == 0 {
            // After a wait it asks for more at once.
            self.given_before = if self.waits { 8 } else { self.given };
            self.waits = false;
        }
        if produced.is_ready() || worked.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}
