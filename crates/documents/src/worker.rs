//! The loops of the engine: who writes in a database, what is written, what is read.

pub mod asker;
pub mod catalogue;
pub mod follower;
pub mod ids;
pub mod indexes;
pub mod keeper;
mod lasting;
mod lookup;
mod names;
pub mod reader;
pub mod rebuild;
mod rename;
pub(crate) mod session;
mod stale;
pub mod step;
pub mod sweeper;
pub mod teller;
pub mod writer;
mod writing;
