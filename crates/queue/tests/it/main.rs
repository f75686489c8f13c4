//! The queue as a state machine, as its log has it, and as its partitions run it.

mod model;
mod simulator;
