//! Documents in real databases.

mod races;
mod writes;
mod world;
