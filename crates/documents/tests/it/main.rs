//! Documents in real databases.

mod batches;
mod changes;
mod declarations;
mod queries;
mod races;
mod renames;
mod world;
mod writes;
