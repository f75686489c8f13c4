//! Pure decisions: encodings, the head, evaluation. No clock, no disk, no tokio.

pub mod chunk;
pub mod head;
pub mod index;
pub mod metadata;
pub mod parquet;
pub mod policy;
pub mod record;
pub(crate) mod relabel;
pub mod replicas;
pub mod rules;
pub mod schedule;
pub mod scrape;
pub(crate) mod series_keys;
pub mod yaml;
