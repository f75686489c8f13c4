//! The settings of the views engine.

use egret_base::settings::{Size, Span};

use crate::core::capture::Recording;
use crate::store::refresh::Limits;

egret_base::settings! {
    /// Settings of the views engine.
    pub struct ViewsConfig in "views" {
        /// Lag of a view that is made without a schedule and that no view reads.
        default_lag: Span = Span::secs(1); positive,
        /// Groups of views that read each other which are refreshed at a time, in each database. Each takes a
        /// connection.
        refresh_parallel_max: u32 = 2; positive,
        /// How long a refresh may take before it is ended and counted as failed.
        refresh_timeout: Span = Span::secs(600); positive,
        /// How long locks on tables are waited for, when a view is made and when one is refreshed.
        lock_timeout: Span = Span::secs(5); positive,
        /// Memory of all that a statement of a refresh sorts and hashes at a time; each step has its share of it, and no more than its
        /// changes need. What is more is put on the server's disk.
        refresh_memory: Size = Size::mib(512); positive,
        /// How long after a failed refresh the next is tried at first; it doubles with each failure.
        retry_after: Span = Span::secs(1); positive,
        /// The longest time between two attempts.
        retry_after_max: Span = Span::secs(300); positive,
        /// Failures in a row after which a view is suspended.
        failures_max: u32 = 10; positive,
        /// Views in a database.
        views_max: u32 = 1_000,
        /// Bytes of the changes of one table that wait for views; over it they are not recorded any more, and views of it are
        /// computed anew. It holds for tables that a view reads for the first time after it was set.
        changes_size_max: Size = Size::gib(1); positive,
        /// Bytes of the changes of one table over which they are recorded in two tables in turn: one is written to, and the other is
        /// truncated when all views have seen what is in it, where rows would be deleted one by one else.
        changes_segment_size: Size = Size::mib(32); positive,
        /// Whether changes are recorded in unlogged tables: writers log less, and a crash of the server, or the promotion of a standby, has the
        /// views of those tables computed anew once. It holds for tables that a view reads for the first time after it was set.
        changes_unlogged: bool = false,
        /// Changes of its tables with which a view is suspended rather than refreshed, as something may have gone wrong; 0: no number of them.
        fuse_changes: u64 = 0,
        /// Rows that changes may come to in a join, before they are applied; over it the view is computed anew.
        delta_rows_max: u64 = 10_000_000; positive,
        /// For how long change sets of a view that is followed are kept, where nothing else was said for it.
        change_sets_kept: Span = Span::secs(86_400); positive,
        /// Bytes of the change sets of one view that are kept: over it the oldest are forgotten before their time.
        change_sets_size_max: Size = Size::mib(256); positive,
        /// Rows of a change set. One that has more is not kept, and those who follow the view are told to read it anew.
        change_set_rows_max: u64 = 100_000; positive,
        /// Bytes of the rows of one event, or message, in which somebody is told of a change set: what is larger comes in parts.
        change_event_size: Size = Size(256 << 10); positive,
        /// Bytes of the rows of a change set that a task has in its payload; with more, it says how many they are and where they are read.
        change_task_size_max: Size = Size(64 << 10),
        /// Those who follow views at a time, by server-sent events and gRPC.
        followers_max: u32 = 100,
        /// One in so many refreshes of views that read each other compares one of them with its query, which takes as long as to ask it; 0:
        /// none does. A view that is not what its query says is computed anew.
        verify_every: u32 = 0,
        /// Refreshes of each view that are remembered.
        history_max: u32 = 100,
    }
}

impl ViewsConfig {
    /// How changes are recorded.
    pub fn recording(&self) -> Recording {
        Recording {
            size_max: self.changes_size_max.bytes(),
            segment_size: self.changes_segment_size.bytes(),
            is_unlogged: self.changes_unlogged,
        }
    }

    /// How much a refresh may be.
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
