//! Collections, and what a JSON body means for them. No clock, no I/O, no tokio.
//!
//! `json` parses bytes strictly; `path` addresses places in a body; `schema` validates bodies;
//! `definition` is a declaration, checked by itself and against the others; `collection` is a
//! compiled definition; `identity` makes aliases of values; `patch` changes bodies; `write` is a
//! requested write with its lock set; `decision` decides on it, `atomic` on several that are
//! executed all or none; `edges` is how references are stored; `schedule` admits writes that do not
//! conflict; `query` parses queries; `rights` checks claims; `compatibility` compares two states of
//! a collection; `openapi` describes collections to clients.

pub(crate) mod atomic;
pub mod collection;
pub(crate) mod compatibility;
pub mod decision;
pub mod definition;
pub mod edges;
pub mod identity;
pub mod json;
pub mod openapi;
pub mod patch;
pub mod path;
pub mod query;
pub mod rights;
pub mod schedule;
pub mod schema;
pub(crate) mod write;
