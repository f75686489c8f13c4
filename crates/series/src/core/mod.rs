//! Pure decisions: no clock, no disk, no tokio.

pub mod promql;
