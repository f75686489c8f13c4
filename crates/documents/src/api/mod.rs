//! The operations of the engine, as the frontends call them.

mod batch;
mod caller;
mod database;
mod declare;
mod discovery;
mod engine;
mod export;
mod follow;
mod fsck;
mod history;
mod identity;
mod import;
mod lookup;
mod patch;
mod patch_locks;
mod query;
mod subscribe;
mod write;

pub use self::batch::BatchWrite;
pub use self::caller::Caller;
pub use self::declare::{DeclarationOutcome, DeclarationResult};
pub use self::engine::{Documents, Options};
pub use self::export::Export;
pub use self::follow::{Change, ChangesPage, ChangesQuery};
pub use self::fsck::{Finding, FindingKind, FsckReport};
pub use self::history::Versions;
pub use self::import::ImportResult;
pub use self::lookup::CollectionSummary;
pub use self::patch::PatchFormat;
pub use self::query::{
    CountMode, DocumentProjection, FindPage, FindPageItem, FindQuery, ReferringDocuments,
};
pub use self::subscribe::{SubscriptionSpec, SubscriptionStatus};
pub use crate::core::write::WriteOp;
pub use crate::model::IMPORT_LINES_MAX;
pub use crate::store::subscriptions::Destination;
pub use crate::worker::commit::result::BatchRejection;
