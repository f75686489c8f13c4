//! The partition as a pure state machine: no clock, no disk, no tokio, no chance of its own.

pub mod command;
pub mod entry;
pub mod intern;
pub mod lanes;
pub mod list;
pub mod numbered;
pub mod places;
pub mod retry;
pub mod slab;
pub mod state;
pub mod tables;
pub mod wheel;
