//! The series engine: a metrics store that speaks Prometheus's protocols. See the crate's `README.md` for the map.

pub mod core;
pub mod model;
pub mod store;
pub mod wire;
pub mod worker;
