//! What of views is in PostgreSQL.

pub mod advice;
pub mod apply;
pub mod build;
pub mod captures;
pub mod create;
pub mod describe;
pub mod explain;
mod footing;
mod group;
pub mod history;
pub mod immediate;
pub mod install;
pub mod load;
pub mod patience;
pub mod refresh;
pub mod registry;
pub mod remove;
pub mod repair;
pub mod report;
pub mod requests;
pub mod restored;
pub mod rights;
mod segments;
pub mod standing;
pub mod statements;
mod unions;
