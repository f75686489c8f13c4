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
pub(super) struct Holder {
    link: GrpcLink,
    pub(super) ends: LeaseEnds,
}

impl Holder {
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
        wire::hello(&mut hello, queue, "egret-bench", lease_ms);
        wire::credits(&mut hello, count);
        link.put(&hello);
        let mut held = 0;
        let mut ends = LeaseEnds {
            first_ms: u64::MAX,
            last_ms: 0,
        };
        while held < count {
            let take = |message: &[u8]| tasks(message, &mut held, &mut ends);
            let mut take = take;
            poll_fn(|context| link.poll(context, &mut take)).await?;
        }
        Ok(Self { link, ends })
    }

    /// Reads on, so that the server can tell which leases have ended, until the stream ends.
    pub(super) async fn listen(mut self) {
        // Its end is what is waited for.
        while poll_fn(|context| self.link.poll(context, |_| Ok(())))
            .await
            .is_ok()
        {}
    }
}

fn tasks(message: &[u8], held: &mut u32, ends: &mut LeaseEnds) -> Result<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        let (2, Value::Bytes(task)) = field else {
            continue;
        };
        *held += 1;
        let mut fields = Fields(task);
        while let Some(field) = fields.next()? {
            if let (6, Value::Varint(until)) = field {
                ends.first_ms = ends.first_ms.min(until);
                ends.last_ms = ends.last_ms.max(until);
            }
        }
    }
    Ok(())
}
