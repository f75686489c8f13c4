//! Branches: a writable copy of a database, in milliseconds, thrown away after.
//!
//! A *template* is a recovered, cleanly stopped, read-only copy of a source; a *branch* is a
//! writable clone of a template with a postmaster of its own, reached through the proxy or the API.
//! [`Branches`] is the engine's handle.

mod api;
pub mod config;
pub mod core;
mod engine;
pub mod error;
mod metrics;
pub mod model;
mod stopwatch;
mod store;
mod worker;

pub use api::change::Children;
pub use api::create::CreateOutcome;
pub use api::pool::PoolStatus;
pub use api::session::{BranchEndpoint, ClientRequest, QueryAnswer, QueryColumn, SessionGuard};
pub use api::verify::{Finding, Proof, RegistryCheck};
pub use api::view::{BranchView, TemplateView, VolumeView};
pub use config::BranchesConfig;
pub use core::attempts::{Attempts, SessionFailure};
pub use engine::{Branches, CrashPoints, DELETIONS_MAX, Options};
pub use error::BranchesError;
pub use store::prepare::ROLE;
pub use store::registry::TABLES;
pub use store::volume::{MountedVolume, PASSWORD_FILE, open as open_volume};
pub use worker::VolumeService;
