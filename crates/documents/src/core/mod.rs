//! What a collection is and what a JSON body means for it. No clock, no I/O, no tokio.
//!
//! `json` reads bytes strictly; `path` names places in a body; `schema` says what a body may be; `definition` is what a user declares, checked
//! by itself and against the others; `collection` is that with everything prepared; `identity` makes names of values; `patch` changes bodies;
//! `decide` says what becomes of a write, `bundle` of several that are done all or none, `group` what a write claims, `edges` how what a document refers to is kept, `schedule` which run beside each other;
//! `query` reads what is looked for; `rights` says who may see and write what; `compatibility` compares two states of a collection; `openapi` describes collections to clients.

pub mod bundle;
pub mod collection;
pub mod compatibility;
pub mod decide;
pub mod definition;
pub mod edges;
pub mod group;
pub mod identity;
pub mod json;
pub mod openapi;
pub mod patch;
pub mod path;
pub mod query;
pub mod rights;
pub mod schedule;
pub mod schema;
