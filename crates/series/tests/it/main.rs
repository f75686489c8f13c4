//! The series engine as its users meet it.

mod blocks;
mod hostile;
mod promql;
