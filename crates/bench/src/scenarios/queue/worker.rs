//! A worker that takes tasks and does nothing with them.

use std::future::poll_fn;

use anyhow::Result;
use bytes::BytesMut;

use super::link::Link;
use super::target::Target;
use super::wire::{self, Fields, Value};

/// Tasks that are held, with the stream they were pushed on.
pub(super) struct Holder {
    link: Link,
    /// When the first lease ends, and the last one, in Unix milliseconds.
    pub(super) ends_ms: (u64, u64),
}

impl Holder {
    /// Connects, and waits until it holds `count` tasks for so many milliseconds.
    ///
    /// # Errors
    /// When the server does not answer, or ends the stream.
    pub(super) async fn claim(
        target: &Target,
        queue: &str,
        count: u32,
        lease_ms: u64,
    ) -> Result<Self> {
        let path = "/egret.queue.v1.Queue/Work";
        let mut link = Link::open(&target.host, path, &target.token).await?;
        let mut hello = BytesMut::new();
        wire::hello(&mut hello, queue, "egret-bench", lease_ms);
        wire::credits(&mut hello, count);
        link.put(&hello);
        let (mut held, mut ends_ms) = (0, (u64::MAX, 0));
        while held < count {
            let take = |message: &[u8]| tasks(message, &mut held, &mut ends_ms);
            let mut take = take;
            poll_fn(|context| link.poll(context, &mut take)).await?;
        }
        Ok(Self { link, ends_ms })
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

fn tasks(message: &[u8], held: &mut u32, ends_ms: &mut (u64, u64)) -> Result<()> {
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        let (2, Value::Bytes(task)) = field else {
            continue;
        };
        *held += 1;
        let mut fields = Fields(task);
        while let Some(field) = fields.next()? {
            if let (6, Value::Varint(until)) = field {
                *ends_ms = (ends_ms.0.min(until), ends_ms.1.max(until));
            }
        }
    }
    Ok(())
}
