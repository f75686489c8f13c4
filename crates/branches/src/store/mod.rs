//! The only place of this engine that touches disk or SQL.

pub(crate) mod egret_schema;
pub mod files;
pub mod prepare;
pub mod proof;
pub(crate) mod readahead;
pub(crate) mod recovery_loss;
pub mod registry;
pub mod secret;
pub mod source;
pub mod volume;
