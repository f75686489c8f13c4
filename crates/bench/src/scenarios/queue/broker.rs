//! Interface to a task queue, Egret's or another: one connection to enqueue on and one to work on,
//! both packing everything that waits into one write.

use std::ops::Range;
use std::task::{Context, Poll};

use anyhow::Result;

/// A task queue behind two connections. Nothing here waits: what is asked for is buffered, goes out
/// with the next [`Broker::poll`], and is answered in [`Events`].
pub(super) trait Broker {
    /// Makes a task. The first one has number 0 in [`Events::enqueued`], and so on.
    fn enqueue(&mut self, payload: &[u8]);

    /// The worker has room for so many more tasks.
    fn add_credits(&mut self, credits: u32);

    /// Completes a task, of which [`Events::delivered`] had this handle. The first one has number 0
    /// in [`Events::completed`], and so on.
    fn complete(&mut self, handle: &[u8]);

    /// Sends what is buffered, and adds what has been answered; ready when there is any.
    ///
    /// # Errors
    /// When a connection is lost, or an answer is not as documented.
    fn poll(&mut self, context: &mut Context<'_>, events: &mut Events) -> Poll<Result<()>>;
}

/// Events that a task queue has sent.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Numbers of tasks that it has acknowledged.
    pub(super) enqueued: Vec<u64>,
    /// Numbers of tasks that it refused, and why.
    pub(super) refused_enqueues: Vec<(u64, String)>,
    /// The number in the payload of each task that was handed out, and where its handle is in
    /// `handles`.
    pub(super) delivered: Vec<(u64, Range<u32>)>,
    pub(super) handles: Vec<u8>,
    /// Numbers of completions that it has acknowledged.
    pub(super) completed: Vec<u64>,
    /// Numbers of completions that it refused, and why.
    pub(super) refused_completions: Vec<(u64, String)>,
}

impl Events {
    /// A task was handed out.
    ///
    /// # Errors
    /// When the payload is none that was sent.
    #[inline]
    pub(super) fn push_delivery(&mut self, payload: &[u8], handle: &[u8]) -> Result<()> {
        let Some(number) = read_number(payload) else {
            anyhow::bail!("the server delivered a task that this program did not enqueue");
        };
        let begin = self.handles.len() as u32;
        self.handles.extend_from_slice(handle);
        self.delivered.push((number, begin..self.handles.len() as u32));
        Ok(())
    }
}

/// The fewest bytes of a payload: a number.
pub(super) const PAYLOAD_BYTES_MIN: u32 = 8;

/// Writes a task's number into its payload.
#[inline]
pub(super) fn write_number(payload: &mut [u8], number: u64) {
    payload[..PAYLOAD_BYTES_MIN as usize].copy_from_slice(&number.to_le_bytes());
}

fn read_number(payload: &[u8]) -> Option<u64> {
    let number = payload.first_chunk::<{ PAYLOAD_BYTES_MIN as usize }>()?;
    Some(u64::from_le_bytes(*number))
}
