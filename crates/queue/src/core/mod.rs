//! The partition as a pure state machine: no clock, no disk, no tokio, no chance of its own.

pub mod command;
pub(crate) mod cow_page_map;
pub mod entry;
pub(crate) mod hash_index;
pub(crate) mod intern;
pub mod lanes;
pub mod list;
pub mod retry;
pub(crate) mod slab;
pub mod state;
pub(crate) mod task_index;
pub(crate) mod wheel;
