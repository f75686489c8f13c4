//! The series engine as its users meet it.

mod engine;
mod hostile;
mod promql;
