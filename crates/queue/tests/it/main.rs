//! The queue as a state machine, as its log has it, and as its partitions run it.

mod attachments;
mod bounds;
mod bytes;
mod callbacks;
mod chains;
mod engine;
mod faults;
mod golden;
mod hostile;
mod memory;
mod model;
mod order;
mod outbox;
mod partition;
mod roundtrip;
mod schedules;
mod shared;
mod simulator;
mod stopped;
mod test_engine;
