//! Redis Streams with a consumer group:
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::BytesMut;
use egret_bench_cli::Durability;

use super::super::broker::{Broker, Events};
use super::super::pipe::{Pipe, split_line};

pub(super) fn add_arguments(command: &mut Command, path: &Path, port: u16, durability: Durability) {
    let fsync = match durability {
        Durability::Fsync => "always",
        Durability::Interval => "everysec",
        Durability::None => "no",
    };
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(path).args([
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        fsync,
    ]);
}

/// A producer's connection and a worker's. The worker acknowledges and deletes what it has done and
/// asks for more in one go; the question waits on the server while there is nothing.
pub(super) struct Redis {
    producer: Pipe,
    worker: Pipe,
    next_task: u64,
    credits: u32,
    is_reading: bool,
    /// Ids to be acknowledged and deleted.
    completed_ids: Vec<Vec<u8>>,
    completions: u64,
    /// What the replies on the worker's connection will be.
    expected_replies: VecDeque<ExpectedReply>,
}

enum ExpectedReply {
    Acknowledged(u64),
    Deleted(Range<u64>),
    Tasks,
}

impl Redis {
    pub(super) async fn open(port: u16) -> Result<Self> {
        let mut worker = Pipe::open(port).await?;
        let mut group = BytesMut::new();
        push_command(&mut group, &[b"XGROUP", b"CREATE", b"t", b"g", b"$", b"MKSTREAM"]);
        worker.exchange(&group, |bytes| Ok(parse_reply(bytes)?.map(|(_, used)| used))).await?;
        Ok(Self {
            producer: Pipe::open(port).await?,
            worker,
            next_task: 0,
            credits: 0,
            is_reading: false,
            completed_ids: Vec::new(),
            completions: 0,
            expected_replies: VecDeque::new(),
        })
    }

    fn send_requests(&mut self) {
        // Behind a question that waits, nothing would be answered; and while one does, nothing is
        // held.
        if self.is_reading {
            return;
        }
        if !self.completed_ids.is_empty() {
            let ids = self.completed_ids.iter().map(Vec::as_slice);
            let count = ids.len() as u64;
            let (acknowledge, delete): ([&[u8]; 3], [&[u8]; 2]) =
                ([b"XACK", b"t", b"g"], [b"XDEL", b"t"]);
            for verb in [&acknowledge[..], &delete[..]] {
                let words: Vec<&[u8]> = verb.iter().copied().chain(ids.clone()).collect();
                push_command(&mut self.worker.outbox, &words);
            }
            self.expected_replies.push_back(ExpectedReply::Acknowledged(count));
            let numbers = self.completions - count..self.completions;
            self.expected_replies.push_back(ExpectedReply::Deleted(numbers));
            self.completed_ids.clear();
        }
        if self.credits > 0 {
            let count = self.credits.to_string();
            let words: [&[u8]; 11] = [
                b"XREADGROUP",
                b"GROUP",
                b"g",
                b"c",
                b"COUNT",
                count.as_bytes(),
                b"BLOCK",
                b"0",
                b"STREAMS",
                b"t",
                b">",
            ];
            push_command(&mut self.worker.outbox, &words);
            self.expected_replies.push_back(ExpectedReply::Tasks);
            self.is_reading = true;
        }
    }
}

impl Broker for Redis {
    fn enqueue(&mut self, payload: &[u8]) {
        push_command(&mut self.producer.outbox, &[b"XADD", b"t", b"*", b"p", payload]);
    }

    fn add_credits(&mut self, credits: u32) {
        self.credits += credits;
    }

    fn complete(&mut self, handle: &[u8]) {
        self.completed_ids.push(handle.to_vec());
        self.completions += 1;
    }

    fn poll(&mut self, context: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>> {
        self.send_requests();
        let next_task = &mut self.next_task;
        let produced = self.producer.poll(context, |bytes| {
            let Some((_, used)) = parse_reply(bytes)? else {
                return Ok(None);
            };
            events.enqueued.push(*next_task);
            *next_task += 1;
            Ok(Some(used))
        })?;
        let (expected_replies, credits, is_reading) =
            (&mut self.expected_replies, &mut self.credits, &mut self.is_reading);
        let worked = self.worker.poll(context, |bytes| {
            let Some((value, used)) = parse_reply(bytes)? else {
                return Ok(None);
            };
            match (
                expected_replies.pop_front().context("redis sent a reply without a request")?,
                value,
            ) {
                (ExpectedReply::Acknowledged(count), Reply::Number(done)) => {
                    ensure!(done == count as i64, "redis acknowledged {done} of {count}");
                }
                (ExpectedReply::Deleted(numbers), Reply::Number(_)) => {
                    events.completed.extend(numbers)
                }
                (ExpectedReply::Tasks, value) => {
                    *credits -= read_tasks(&value, events)?;
                    *is_reading = false;
                }
                (_, other) => bail!("redis answered {other:?}"),
            }
            Ok(Some(used))
        })?;
        if produced.is_ready() || worked.is_ready() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

/// Reads `[[stream, [[id, [field, payload]], …]]]`.
fn read_tasks(reply: &Reply<'_>, events: &mut Events) -> Result<u32> {
    let Reply::Many(streams) = reply else {
        bail!("redis answered {reply:?}");
    };
    let mut count = 0;
    for stream in streams {
        let Reply::Many(stream) = stream else {
            continue;
        };
        let [_, Reply::Many(entries)] = &stream[..] else {
            continue;
        };
        for entry in entries {
            let Reply::Many(entry) = entry else { continue };
            let [Reply::Text(id), Reply::Many(fields)] = &entry[..] else {
                continue;
            };
            let [_, Reply::Text(payload)] = &fields[..] else {
                continue;
            };
            events.push_delivery(payload, id)?;
            count += 1;
        }
    }
    Ok(count)
}

fn push_command(out: &mut BytesMut, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[derive(Debug)]
enum Reply<'a> {
    Number(i64),
    Text(&'a [u8]),
    Many(Vec<Reply<'a>>),
}

/// A reply and its length; `None` while it is not whole.
fn parse_reply(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>> {
    let Some((head, mut used)) = split_line(bytes) else {
        return Ok(None);
    };
    let (kind, rest) = head.split_first().context("redis sent an empty line")?;
    let count = || -> Result<i64> {
        let text = std::str::from_utf8(rest)?;
        text.parse().with_context(|| format!("redis sent the number `{text}`"))
    };
    let value = match kind {
        b'+' => Reply::Text(rest),
        b'-' => bail!("redis refused: {}", String::from_utf8_lossy(rest)),
        b':' => Reply::Number(count()?),
        b'$' => {
            let size = count()?.max(0) as usize;
            let Some(text) = bytes.get(used..used + size) else {
                return Ok(None);
            };
            used += size + 2;
            if bytes.len() < used {
                return Ok(None);
            }
            Reply::Text(text)
        }
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..count()? {
                let Some((item, length)) = parse_reply(&bytes[used..])? else {
                    return Ok(None);
                };
                items.push(item);
                used += length;
            }
            Reply::Many(items)
        }
        other => bail!("redis sent a reply of kind {other}"),
    };
    Ok(Some((value, used)))
}

#[cfg(test)]
mod tests;
