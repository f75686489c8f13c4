//! A worker that takes tasks and does nothing with them.

use std::future::poll_fn;

use anyhow::Result;
use bytes::BytesMut;

use super::link::GrpcLink;
use super::target::QueueTarget;
use super::wire::{self, Fields, Value};

/// First and last end of leases, in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseEnds {
    pub(super) first_ms: u64,
    pub(super) last_ms: u64,
}

/// Tasks that are held, with the stream they were pushed on.
pub(super) struct LeaseHolder {
    link: GrpcLink,
    pub(super) ends: LeaseEnds,
}

impl LeaseHolder {
    /// Connects, and waits until it holds `count` tasks for so many milliseconds.
    ///
    /// # Errors
    /// When the server does not answer, or ends the stream.
    pub(super) async fn claim(
        target: &QueueTarget,
        queue: &str,
        count: u32,
        lease_ms: u64,
    ) -> Result<Self> {
        let path = "/egret.queue.v1.Queue/Work";
        let mut link = GrpcLink::open(&target.host, path, &target.token).await?;
        let mut hello = BytesMut::new();
        wire::put_hello(&mut hello, queue, "egret-bench", lease_ms);
        wire::put_credits(&mut hello, count);
        link.push_message(&hello);
        let mut held_count = 0;
        let mut ends = LeaseEnds { first_ms: u64::MAX, last_ms: 0 };
        while held_count < count {
            let on_message = |message: &[u8]| read_tasks(message, &mut held_count, &mut ends);
            let mut take = on_message;
            poll_fn(|context| link.poll(context, &mut take)).await?;
        }
        Ok(Self { link, ends })
    }

    /// Reads on, so that the server can tell which leases have ended, until the stream ends.
    pub(super) async fn drain_stream(mut self) {
        // Its end is what is waited for.
        while poll_fn(|context| self.link.poll(context, |_| Ok(()))).await.is_ok() {}
    }
}

fn read_tasks(message: &[u8], held_count: &mut u32, ends: &mut LeaseEnds) -> Result<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        let (2, Value::Bytes(task)) = field else {
            continue;
        };
        *held_count += 1;
        let mut fields = Fields(task);
        while let Some(field) = fields.next()? {
            if let (6, Value::Varint(lease_end_ms)) = field {
                ends.first_ms = ends.first_ms.min(lease_end_ms);
                ends.last_ms = ends.last_ms.max(lease_end_ms);
            }
        }
    }
    Ok(())
}
