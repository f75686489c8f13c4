//! The loops of the engine: who writes in a database, what is written, what is read.

pub mod ids;
pub mod keeper;
mod lookup;
mod names;
pub mod reader;
mod session;
mod step;
pub mod writer;
