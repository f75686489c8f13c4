//! The series engine as its users meet it.

mod hostile;
mod promql;
