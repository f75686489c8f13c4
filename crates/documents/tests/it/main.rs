//! Documents in real databases.

mod races;
mod world;
mod writes;
