//! The series engine: a metrics store that speaks Prometheus's protocols. See the crate's `README.md` for the map.

pub mod api;
pub mod config;
pub mod core;
pub mod error;
mod metrics;
pub mod model;
pub mod repair;
pub mod store;
pub mod wire;
pub mod worker;

pub use api::cardinality::{Cardinality, Cost, Counted, HeadStatistics, Largest};
pub use api::describe::MetricMetadata;
pub use api::export::SampleVisitor;
pub use api::gather::Rejected;
pub use api::import::{Import, ImportFormat};
pub use api::look::Scope;
pub use api::monitor::{AlertmanagerStatus, Monitor, MonitorOptions, OwnMetrics, Reloaded};
pub use api::query::{QueryOptions, When};
pub use api::summary::Summary;
pub use api::write::{Duplicates, Value, Written};
pub use api::{Options, Series};
pub use config::SeriesConfig;
pub use error::SeriesError;
pub use worker::SnapshotOf;
