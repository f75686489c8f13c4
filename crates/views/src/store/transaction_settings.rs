//! Settings of a transaction, each a statement.

/// Resolves names in the catalogue and in schema `egret`, whatever the role has set.
pub(crate) const SEARCH_PATH: &str = "SET LOCAL search_path = pg_catalog, egret, pg_temp";

/// The commit does not wait for the disk: after a crash the transaction is repeated.
pub(crate) const ASYNC_COMMIT: &str = "SET LOCAL synchronous_commit = off";

/// Lock timeout where other sessions may wait for locks of this transaction. They start to look for
/// a deadlock after `deadlock_timeout` (a second), which would cancel one of the sessions.
pub(crate) const BRIEF_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '300ms'";
