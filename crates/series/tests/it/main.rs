//! The series engine as its users meet it.

mod engine;
mod blocks;
mod hostile;
mod promql;
