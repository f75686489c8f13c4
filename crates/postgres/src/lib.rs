//! A PostgreSQL server to stand on: one that Egret provisions and supervises, or the user's own.
//!
//! [`embedded`] runs a server beside Egret, [`external`] examines a server that Egret does not run;
//! [`pool`], [`databases`], [`listen`], [`migrate`], [`installation`] and [`retry`] work on both.
//! [`postmaster`] starts, adopts and stops single postmasters and is what branches are made of as
//! well.

pub mod bounded;
pub mod cluster;
pub mod config;
pub mod control_groups;
pub mod database_watch;
pub mod databases;
pub mod embedded;
pub mod error;
pub mod external;
mod hosts;
pub mod installation;
pub mod isolation;
pub mod listen;
pub mod lock_owner;
pub mod managed;
pub mod migrate;
pub mod owner;
pub mod pidfile;
pub mod pool;
pub mod postmaster;
pub mod provision;
pub mod retry;
mod session_probe;
mod session_settings;
pub mod slots;
pub mod superuser;
pub mod supervise;
mod tls_error;
pub mod tuning;
pub mod user_triggers;
pub mod wire;
mod write_back;

pub use config::PostgresConfig;
pub use databases::{Databases, DatabasesError};
pub use embedded::EmbeddedServer;
pub use error::PostgresError;
pub use tokio_postgres;
