//! What a collection is and what a JSON body means for it. No clock, no I/O, no tokio.
//!
//! `json` reads bytes strictly; `path` names places in a body; `schema` says what a body may be; `definition` is what a user declares, checked
//! by itself and against the others; `collection` is that with everything prepared; `identity` makes names of values; `patch` changes bodies;
//! `compatibility` compares two states of a collection; `openapi` describes collections to clients.

pub mod collection;
pub mod compatibility;
pub mod definition;
pub mod identity;
pub mod json;
pub mod openapi;
pub mod patch;
pub mod path;
pub mod schema;
