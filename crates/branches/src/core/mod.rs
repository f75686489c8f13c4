//! Pure decisions: no clock, no I/O, no tokio.

pub mod attempts;
pub mod plan;
pub mod pool;
pub mod preset;
pub mod quota;
pub mod reconcile;
pub mod request;
pub mod room;
pub mod tenant_disk;
