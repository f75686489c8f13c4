//! The series engine: a metrics store that speaks Prometheus's protocols. See the crate's
//! `README.md` for the map.

pub mod api;
pub mod config;
pub mod core;
mod engine;
pub mod error;
mod metrics;
pub mod repair;
pub mod store;
pub mod worker;

pub use api::cardinality::{CardinalityStats, Cost, HeadStatistics, Largest, NameCount};
pub use api::export::SampleVisitor;
pub use api::import::{Import, ImportFormat};
pub use api::ingest_batch::RejectedSamples;
pub use api::label_queries::Scope;
pub use api::metadata::MetricMetadata;
pub use api::monitor::{AlertmanagerStatus, Monitor, MonitorOptions, OwnMetrics, ReloadStatus};
pub use api::query::{EvalTimes, QueryOptions};
pub use api::summary::EngineSummary;
pub use api::write::{Duplicates, WriteCounts, WrittenValue};
pub use api::{EngineOptions, Series};
pub use config::SeriesConfig;
pub use error::SeriesError;
pub use worker::SnapshotOf;
