//! A record that several tasks refer to.

use crate::core::slab::SlotIndex;

/// Owner of a shared record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOwner {
    /// The owner is deleted; the record's bytes are counted until the last holder is deleted.
    None,
    /// A schedule, which counts its bytes.
    Schedule,
    /// The task with this number, which counts its bytes.
    Task(u64),
}

/// A record that tasks besides its owner refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRecord {
    /// Its tenant: a slot in [`Tenants`](super::tenants::Tenants).
    pub tenant: SlotIndex,
    /// The schedule or task whose record it is.
    pub owner: RecordOwner,
    /// Bytes of the content.
    pub bytes: u32,
    /// Tasks that refer to it besides its owner.
    pub holders: u64,
}
