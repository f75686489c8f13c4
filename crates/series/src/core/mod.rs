//! Pure decisions: encodings, the head, evaluation. No clock, no disk, no tokio.

pub mod block;
pub mod chunk;
pub mod head;
pub mod index;
pub mod known;
pub mod metadata;
pub mod policy;
pub mod promql;
pub mod record;
pub mod relabel;
pub mod replicas;
pub mod rules;
pub mod schedule;
pub mod scrape;
pub mod template;
pub mod yaml;
