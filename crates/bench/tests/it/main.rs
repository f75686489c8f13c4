//! The harness as its callers use it: against a real PostgreSQL, with the result file as the
//! answer.

mod series;
mod sql;
