//! Documents in real databases.

mod batches;
mod races;
mod renames;
mod world;
mod writes;
