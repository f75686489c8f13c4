//! Queues and tasks over HTTP and gRPC, the real engine behind them.

mod attaching;
mod calling;
mod frames;
mod hostile;
mod looking;
mod making;
mod producing;
pub mod rig;
mod schedules;
mod scopes;
mod stalled;
mod stopped;
mod streaming;
mod waiting;
mod watching;
mod wire;
mod working;
