//! What is kept in a database; all SQL of the engine is here.

pub mod collections;
pub mod feed;
pub mod indexes;
pub mod install;
pub mod owner;
pub mod query;
pub mod read;
pub mod write;
