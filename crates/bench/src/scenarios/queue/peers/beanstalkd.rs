//! beanstalkd: <https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt>.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail};
use egret_bench_cli::Durability;

use super::super::broker::{Broker, Events};
use super::super::pipe::{Pipe, parse_number, split_line};

pub(super) fn add_arguments(command: &mut Command, path: &Path, port: u16, durability: Durability) {
    command.args(["-l", "127.0.0.1", "-p", &port.to_string()]).arg("-b").arg(path);
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
    next_task: u64,
    credits: u32,
    deletes: VecDeque<u64>,
    completions: u64,
    /// Reserves that are not answered, and how many of this round were given a task.
    pending_reserves: u32,
    reserved_count: u32,
    /// How many the round before was given.
    previous_reserved_count: u32,
    is_waiting: bool,
}

impl Beanstalkd {
    pub(super) async fn open(port: u16) -> Result<Self> {
        Ok(Self {
            producer: Pipe::open(port).await?,
            worker: Pipe::open(port).await?,
            next_task: 0,
            credits: 0,
            deletes: VecDeque::new(),
            completions: 0,
            pending_reserves: 0,
            reserved_count: 0,
            previous_reserved_count: 1,
            is_waiting: false,
        })
    }

    fn send_reserves(&mut self) {
        if self.pending_reserves > 0 || self.credits == 0 {
            return;
        }
        if self.previous_reserved_count == 0 && self.deletes.is_empty() {
            self.worker.outbox.extend_from_slice(b"reserve\r\n");
            self.is_waiting = true;
            self.pending_reserves = 1;
        } else if self.previous_reserved_count > 0 {
            // Twice what there was, so that it finds out soon that there is more.
            self.pending_reserves = (self.previous_reserved_count * 2).min(self.credits);
            for _ in 0..self.pending_reserves {
                self.worker.outbox.extend_from_slice(b"reserve-with-timeout 0\r\n");
            }
        }
        self.reserved_count = 0;
    }
}

impl Broker for Beanstalkd {
    fn enqueue(&mut self, payload: &[u8]) {
        let head = format!("put 0 0 600 {}\r\n", payload.len());
        self.producer.outbox.extend_from_slice(head.as_bytes());
        self.producer.outbox.extend_from_slice(payload);
        self.producer.outbox.extend_from_slice(b"\r\n");
    }

    fn add_credits(&mut self, credits: u32) {
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
        self.send_reserves();
        let next_task = &mut self.next_task;
        let produced = self.producer.poll(context, |bytes| {
            let Some((line, length)) = split_line(bytes) else {
                return Ok(None);
            };
            if !line.starts_with(b"INSERTED ") {
                bail!("beanstalkd answered {}", String::from_utf8_lossy(line));
            }
            events.enqueued.push(*next_task);
            *next_task += 1;
            Ok(Some(length))
        })?;
        let (pending_reserves, reserved_count) =
            (&mut self.pending_reserves, &mut self.reserved_count);
        let (credits, deletes) = (&mut self.credits, &mut self.deletes);
        let worked = self.worker.poll(context, |bytes| {
            let Some((line, length)) = split_line(bytes) else {
                return Ok(None);
            };
            if let Some(rest) = line.strip_prefix(b"RESERVED ") {
                let mut words = rest.split(|byte| *byte == b' ');
                let id = words.next().unwrap_or_default();
                let size = parse_number(words.next().unwrap_or_default())? as usize;
                let Some(payload) = bytes.get(length..length + size) else {
                    return Ok(None);
                };
                if bytes.len() < length + size + 2 {
                    return Ok(None);
                }
                events.push_delivery(payload, id)?;
                (*pending_reserves, *reserved_count, *credits) =
                    (*pending_reserves - 1, *reserved_count + 1, *credits - 1);
                return Ok(Some(length + size + 2));
            }
            match line {
                b"TIMED_OUT" => *pending_reserves -= 1,
                b"DELETED" => {
                    let number = deletes.pop_front().context("nothing was to be deleted")?;
                    events.completed.push(number);
                }
                other => bail!("beanstalkd answered {}", String::from_utf8_lossy(other)),
            }
            Ok(Some(length))
        })?;
        if self.pending_reserves == 0 {
            // After a wait it asks for more at once.
            self.previous_reserved_count = if self.is_waiting { 8 } else { self.reserved_count };
            self.is_waiting = false;
        }
        if produced.is_ready() || worked.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}
