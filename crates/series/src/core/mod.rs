//! Pure decisions: encodings, the head, evaluation. No clock, no disk, no tokio.

pub mod block;
pub mod chunk;
pub mod head;
pub mod index;
pub mod known;
pub mod promql;
pub mod record;
