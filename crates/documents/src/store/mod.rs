//! All SQL of the engine.

pub mod check;
pub mod collections;
pub mod edges;
pub mod feed;
pub mod history;
pub mod install;
mod jsonb;
mod newtypes;
pub mod owner;
pub mod query;
pub(crate) mod query_values;
pub mod read;
pub mod rebuild;
pub mod subscriptions;
pub mod sweep;
pub mod write;

#[cfg(test)]
mod tests;
