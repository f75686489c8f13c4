//! Queue: durable tasks, handed out at least once, with an outcome to wait for.

pub mod core;
pub mod model;
