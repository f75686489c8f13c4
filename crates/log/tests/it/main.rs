//! The log as its users have it, and as the world treats it.

mod crash;
mod durability;
mod end;
mod every_byte;
mod golden;
mod hostile;
mod model;
mod repair;
mod simulator;
