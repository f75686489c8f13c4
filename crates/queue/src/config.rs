//! The settings of the queue engine.

use egret_base::settings::{Size, Span};

egret_base::settings! {
    /// Settings of the queue engine.
    pub struct QueueConfig in "queue" {
        /// Logs that tasks are spread over, each with a thread of its own; fixed when the data
        /// directory is made. 0: as many as cores, at most 8.
        partitions: u32 = 0,
        /// When an enqueue or a report is acknowledged: `fsync` (it is on disk), `interval` (it is written,
        /// and on disk after at most `sync_interval`) or `none` (it is written; a crash of the machine may
        /// lose it, one of Egret does not).
        durability: String = "fsync".to_owned(),
        /// With durability `interval`: the longest time until what is written is on disk.
        sync_interval: Span = Span::ms(100); positive,
        /// Whether an enqueue to a queue that does not exist creates it.
        create_on_demand: bool = false,
        /// Largest number of queues of all tenants together.
        queues_max: u32 = 20_000,
        /// Largest number of queues of one tenant. 0: as many as are still free, so that one tenant alone
        /// gets half of `queues_max`.
        tenant_queues_max: u32 = 0,
        /// Largest number of tasks known at a time, ended ones and callbacks included: a task with a callback counts
        /// as two from the beginning.
        tasks_max: u64 = 100_000_000; positive,
        /// Largest number of them of one tenant; at it, runs of the tenant's schedules wait for room. 0: as many as are
        /// still free, so that one tenant alone gets half of `tasks_max`.
        tenant_tasks_max: u64 = 0,
        /// Bytes of all tasks and schedules known at a time: payloads and what goes with them, results and
        /// errors. A payload counts for as long as a task or callback refers to it, also one of a schedule that was
        /// replaced or deleted. What the logs take on disk is at most twice as much, beside what they are made larger by in
        /// advance. 0: the size of the file system.
        tasks_bytes_max: Size = Size::mib(0),
        /// Bytes of them of one tenant; over it no task is taken in, while results still are. 0: as much as is
        /// still free, so that one tenant alone gets half of `tasks_bytes_max`.
        tenant_tasks_bytes_max: Size = Size::mib(0),
        /// Largest number of schedules of all tenants together.
        schedules_max: u32 = 20_000,
        /// Largest number of schedules of one tenant. 0: as many as are still free.
        tenant_schedules_max: u32 = 0,
        /// Largest payload of a task.
        payload_bytes_max: Size = Size::mib(1); positive,
        /// Largest chain of tasks that are made all together or not at all: their payloads, keys, tags and metadata.
        chain_bytes_max: Size = Size::mib(8); positive,
        /// Largest result of a task, where it is not sent as an attachment.
        result_bytes_max: Size = Size::mib(1),
        /// Largest attachment of a result.
        attachment_bytes_max: Size = Size::mib(64),
        /// Attachments of a result.
        attachments_max: u32 = 16,
        /// Bytes of all attachments together, those that are being sent included.
        attachments_bytes_total_max: Size = Size::gib(20),
        /// Bytes of attachments of one tenant. 0: as much as is still free, so that one tenant alone gets half of
        /// `attachments_bytes_total_max`.
        tenant_attachments_bytes_max: Size = Size::mib(0),
        /// Messages between tasks that wait for one another which a partition may have under way; over it no
        /// task is taken in that waits for others.
        chain_messages_max: u32 = 1_000_000,
        /// Tasks or reports that may wait for one partition; over it callers are told to come again.
        waiting_max: u32 = 262_144; positive,
        /// Bytes of them.
        waiting_bytes_max: Size = Size::mib(256); positive,
        /// Size of a segment of the log.
        segment_size: Size = Size::mib(16); positive,
        /// Free segments kept for work on tasks when the disk is full. Enqueues are refused before they
        /// are touched.
        spare_segments: u32 = 2,
        /// Memory for the latest payloads, for each partition; older ones are read from the log.
        cache_size: Size = Size::mib(16),
        /// Log written since the last snapshot after which a new one is made, at least; one as long as a
        /// quarter of the snapshot before is waited for if that is more.
        snapshot_after: Size = Size::mib(64); positive,
        /// How long leases outlive a restart of Egret, so that workers can connect again.
        lease_grace: Span = Span::secs(10),
        /// How long a partition holds tasks of a queue back while another one has ready tasks of a higher
        /// priority: by no more can a task go before one of higher priority. 0: partitions hand out
        /// independently of each other.
        priority_wait_max: Span = Span::ms(20),
        /// Whether callbacks are sent.
        callbacks: bool = true,
        /// Whether callbacks may go to addresses that are not public: private networks, this machine, link-local
        /// ones. Whoever may enqueue can have Egret send a request there.
        callback_private: bool = false,
        /// Callbacks sent at a time.
        callback_concurrency: u32 = 32; positive,
        /// Callbacks of one tenant sent at a time to one host and port, so that one that does not answer delays no others.
        /// 0: a quarter of `callback_concurrency`.
        callback_concurrency_per_host: u32 = 0,
        /// How long a callback may take.
        callback_timeout: Span = Span::secs(10); positive,
        /// Whose the tasks are that come from outboxes (`egret.enqueue` in a database).
        outbox_tenant: String = "default".to_owned(),
        /// How long the key of a row is remembered after it became a task, so that a row which a restored
        /// database brings back makes no second one. About 70 bytes of memory a task.
        outbox_window: Span = Span::secs(7 * 86_400),
        /// How often an outbox is looked at when nothing is heard of it.
        outbox_poll: Span = Span::secs(2); positive,
        /// Changes of state kept for a subscriber that does not read; it is told how many it missed.
        watch_changes_max: u32 = 10_000; positive,
        /// Subscribers to changes of state.
        watchers_max: u32 = 1_000,
        /// Subscribers of one tenant. 0: as many as are still free.
        tenant_watchers_max: u32 = 0,
    }
}
