//! The only place of this engine that touches disk or SQL.

pub mod ahead;
pub mod egret_schema;
pub mod files;
pub mod loss;
pub mod prepare;
pub mod proof;
pub mod registry;
pub mod secret;
pub mod source;
pub mod volume;
