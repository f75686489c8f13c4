//! The settings of the views engine.

use egret_base::settings::{ByteSize, ConfigDuration};

use crate::core::capture::CaptureOptions;
use crate::model::Limits;

egret_base::settings! {
    /// Settings of the views engine.
    pub struct ViewsConfig in "views" {
        /// Maximum lag of a view without a schedule that no other view reads.
        default_lag: ConfigDuration = ConfigDuration::secs(1); positive,
        /// Largest number of groups of dependent views that are refreshed at the same time, in each
        /// database. Each takes a connection.
        refresh_parallel_max: u32 = 2; positive,
        /// Longest time for a refresh; after that it is cancelled and counted as failed.
        refresh_timeout: ConfigDuration = ConfigDuration::secs(600); positive,
        /// Longest time to wait for locks on tables, when a view is created and when one is
        /// refreshed.
        lock_timeout: ConfigDuration = ConfigDuration::secs(5); positive,
        /// Memory for all sorts and hashes of a statement of a refresh together; each step gets a
        /// share of it, and no more than its changes need. Anything beyond it spills to the
        /// server's disk.
        refresh_memory: ByteSize = ByteSize::mib(512); positive,
        /// Delay of the first retry after a failed refresh; it doubles with each failure.
        retry_after: ConfigDuration = ConfigDuration::secs(1); positive,
        /// Longest delay between two attempts.
        retry_after_max: ConfigDuration = ConfigDuration::secs(300); positive,
        /// Consecutive failures after which a view is suspended.
        failures_max: u32 = 10; positive,
        /// Largest number of views in a database.
        views_max: u32 = 1_000,
        /// Bytes of the pending changes of one table; over it, changes are no longer recorded, and
        /// views of the table are rebuilt. A new value applies to tables that a view then reads for
        /// the first time.
        changes_size_max: ByteSize = ByteSize::gib(1); positive,
        /// Bytes of the changes of one table over which they are recorded in two tables in turn:
        /// one is written to, and the other is truncated when all views have applied its changes.
        /// Otherwise rows are deleted one by one.
        changes_segment_size: ByteSize = ByteSize::mib(32); positive,
        /// Whether changes are recorded in unlogged tables: writers produce less WAL, but after a
        /// crash of the server or the promotion of a standby the views of those tables are rebuilt
        /// once. A new value applies to tables that a view then reads for the first time.
        changes_unlogged: bool = false,
        /// Number of pending changes over which a view is suspended rather than refreshed, because
        /// they may be a mistake; 0: no limit.
        fuse_changes: u64 = 0,
        /// Largest number of rows in a join of changes before they are applied; over it the view is
        /// rebuilt.
        delta_rows_max: u64 = 10_000_000; positive,
        /// How long change sets of a followed view are kept, unless the view has its own value.
        change_sets_kept: ConfigDuration = ConfigDuration::secs(86_400); positive,
        /// Bytes of the change sets of one view that are kept; over it the oldest are deleted
        /// before their time.
        change_sets_size_max: ByteSize = ByteSize::mib(256); positive,
        /// Largest number of rows of a change set. A larger one is not kept, and followers get a
        /// reset and must read the whole view again.
        change_set_rows_max: u64 = 100_000; positive,
        /// Bytes of the rows of one event or message to a follower; a larger change set is sent in
        /// parts.
        change_event_size: ByteSize = ByteSize(256 << 10); positive,
        /// Bytes of the rows of a change set in the payload of a task; of a larger one, the payload
        /// has only the number of rows and where to read them.
        change_task_size_max: ByteSize = ByteSize(64 << 10),
        /// Largest number of followers of views at the same time, by server-sent events and gRPC.
        followers_max: u32 = 100,
        /// One in this many refreshes of dependent views also compares one of them with its query,
        /// which takes as long as the query; 0: none. A view that differs from its query is
        /// rebuilt.
        verify_every: u32 = 0,
        /// Number of refreshes that are kept in the history of each view.
        history_max: u32 = 100,
    }
}

impl ViewsConfig {
    /// How changes of tables are recorded.
    pub(crate) fn capture_options(&self) -> CaptureOptions {
        CaptureOptions {
            size_max: self.changes_size_max.bytes(),
            segment_size: self.changes_segment_size.bytes(),
            is_unlogged: self.changes_unlogged,
        }
    }

    /// Bounds on one refresh, of changes, rows, bytes and memory.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            fuse_changes: self.fuse_changes,
            change_set_rows_max: self.change_set_rows_max,
            change_set_bytes_max: self.change_sets_size_max.bytes(),
            delta_rows_max: self.delta_rows_max,
            memory_max: self.refresh_memory.bytes(),
        }
    }
}
