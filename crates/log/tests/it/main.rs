//! The log as its users have it, and as the world treats it.

mod model;
mod simulator;
