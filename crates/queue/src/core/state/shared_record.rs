//! A record that several tasks refer to.

use crate::core::slab::SlotIndex;

/// What a shared record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOwner {
    /// The owner has gone; the record's bytes are counted until the last holder goes.
    None,
    /// A schedule, which counts its bytes.
    Schedule,
    /// The task with this number, which counts its bytes.
    Task(u64),
}

/// A record that others than its owner refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRecord {
    /// Whose it is: a place in [`Tenants`](super::tenants::Tenants).
    pub tenant: SlotIndex,
    /// What it belongs to.
    pub owner: RecordOwner,
    /// Bytes of the content.
    pub bytes: u32,
    /// Tasks that refer to it besides its owner.
    pub holders: u64,
}
