//! Queues and tasks over HTTP, the real engine behind them.

mod attaching;
mod looking;
mod making;
mod producing;
mod rig;
mod schedules;
mod watching;
mod working;
