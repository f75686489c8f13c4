//! Messages between partitions, for tasks that wait for others.

use sha2::{Digest, Sha256};

use crate::model::TaskId;

/// A message to another partition, or to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The task it is for; its shard finds the partition.
    pub to: TaskId,
    /// The task it is from.
    pub from: TaskId,
    /// Content of the message.
    pub kind: MessageKind,
}

/// Content of a [`Message`] between partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// `from` waits for `to`.
    Await {
        /// Mark of the tenant of `from`: see [`tenant_mark`].
        tenant: u64,
    },
    /// `from` has ended, and `to` waits for it.
    Ended {
        /// Whether it was completed.
        completed: bool,
    },
}

/// A tenant's name as a number: the first eight bytes of its SHA-256.
pub fn tenant_mark(tenant: &str) -> u64 {
    let digest = Sha256::digest(tenant.as_bytes());
    let (first, _) = digest.split_first_chunk().expect("it has 32 bytes");
    u64::from_le_bytes(*first)
}
