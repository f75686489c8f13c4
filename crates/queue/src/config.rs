//! The settings of the queue engine.

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_log::DurabilityMode;

egret_base::settings! {
    /// Settings of the queue engine.
    pub struct QueueConfig in "queue" {
        /// Partitions that tasks are distributed over, each with a log and a thread of its own;
        /// fixed when the data directory is created. 0: as many as cores, at most 8.
        partitions: u32 = 0,
        /// When an enqueue or a report is acknowledged: `fsync` (it is on disk), `interval` (it is
        /// written, and on disk after at most `sync_interval`) or `none` (it is written; a crash of
        /// the machine may lose it, one of Egret does not).
        durability: DurabilityMode = DurabilityMode::Fsync,
        /// With durability `interval`: the longest time until what is written is on disk.
        sync_interval: ConfigDuration = ConfigDuration::ms(100); positive,
        /// Whether an enqueue to a queue that does not exist creates it.
        create_on_demand: bool = false,
        /// Largest number of queues of all tenants together.
        queues_max: u32 = 20_000,
        /// Largest number of queues of one tenant. 0: as many as are still free, so that a single
        /// tenant gets half of `queues_max`.
        tenant_queues_max: u32 = 0,
        /// Largest number of tasks that are kept, ended ones and callbacks included: a task with a
        /// callback counts as two from the start.
        tasks_max: u64 = 100_000_000; positive,
        /// Largest number of tasks of one tenant; when it is reached, runs of the tenant's
        /// schedules wait. 0: as many as are still free, so that a single tenant gets half of
        /// `tasks_max`.
        tenant_tasks_max: u64 = 0,
        /// Bytes of all tasks and schedules that are kept: payloads with their attributes, results
        /// and errors. A payload counts for as long as a task or callback refers to it, even if its
        /// schedule was replaced or deleted. The logs take at most twice as much on disk, plus the
        /// space that they preallocate. 0: the size of the file system.
        tasks_bytes_max: ByteSize = ByteSize::mib(0),
        /// Bytes of tasks and schedules of one tenant; over it enqueues are refused, while results
        /// are still accepted. 0: as much as is still free, so that a single tenant gets half of
        /// `tasks_bytes_max`.
        tenant_tasks_bytes_max: ByteSize = ByteSize::mib(0),
        /// Largest number of schedules of all tenants together.
        schedules_max: u32 = 20_000,
        /// Largest number of schedules of one tenant. 0: as many as are still free.
        tenant_schedules_max: u32 = 0,
        /// Largest payload of a task.
        payload_bytes_max: ByteSize = ByteSize::mib(1); positive,
        /// Largest chain (tasks that are enqueued all together or not at all): bytes of their
        /// payloads, keys, tags and metadata.
        chain_bytes_max: ByteSize = ByteSize::mib(8); positive,
        /// Largest result of a task that is not sent as an attachment.
        result_bytes_max: ByteSize = ByteSize::mib(1),
        /// Largest attachment of a result.
        attachment_bytes_max: ByteSize = ByteSize::mib(64),
        /// Largest number of attachments of a result.
        attachments_max: u32 = 16,
        /// Bytes of all attachments together, those being uploaded included.
        attachments_bytes_total_max: ByteSize = ByteSize::gib(20),
        /// Bytes of attachments of one tenant. 0: as much as is still free, so that a single tenant
        /// gets half of `attachments_bytes_total_max`.
        tenant_attachments_bytes_max: ByteSize = ByteSize::mib(0),
        /// Messages between dependent tasks that a partition may have in flight; over it, tasks
        /// that depend on others are refused.
        chain_messages_max: u32 = 1_000_000,
        /// Tasks or reports that may be queued for one partition; further ones are refused and can
        /// be retried.
        waiting_max: u32 = 262_144; positive,
        /// Bytes of tasks or reports that may be queued for one partition.
        waiting_bytes_max: ByteSize = ByteSize::mib(256); positive,
        /// Size of a segment of the log.
        segment_size: ByteSize = ByteSize::mib(16); positive,
        /// Free segments that are reserved for claims and reports when the disk is full. Enqueues
        /// are refused before they use them.
        spare_segments: u32 = 2,
        /// Memory for the latest payloads, for each partition; older ones are read from the log.
        cache_size: ByteSize = ByteSize::mib(16),
        /// A new snapshot is written after at least this much log since the last one, or a quarter
        /// of the last snapshot's size if that is more.
        snapshot_after: ByteSize = ByteSize::mib(64); positive,
        /// How long leases outlive a restart of Egret, so that workers can connect again.
        lease_grace: ConfigDuration = ConfigDuration::secs(10),
        /// How long a partition holds back tasks of a queue while another partition has ready tasks
        /// of a higher priority: a task gets ahead of one with higher priority by at most this
        /// time. 0: partitions hand out tasks independently of each other.
        priority_wait_max: ConfigDuration = ConfigDuration::ms(20),
        /// Whether callbacks are sent.
        callbacks: bool = true,
        /// Whether callbacks may go to addresses that are not public: private networks, this
        /// machine, link-local ones. Any caller that may enqueue can have Egret send a request
        /// there.
        callback_private: bool = false,
        /// Callbacks sent at the same time.
        callback_concurrency: u32 = 32; positive,
        /// Callbacks of one tenant sent at the same time to one host and port, so that a host that
        /// does not answer does not delay others. 0: a quarter of `callback_concurrency`.
        callback_concurrency_per_host: u32 = 0,
        /// How long a callback may take.
        callback_timeout: ConfigDuration = ConfigDuration::secs(10); positive,
        /// Tenant of the tasks that come from outboxes (`egret.enqueue` in a database).
        outbox_tenant: String = "default".to_owned(),
        /// How long the key of an outbox row is remembered after it became a task, so that the row
        /// is not enqueued twice when a restored database brings it back. About 70 bytes of memory
        /// per task.
        outbox_window: ConfigDuration = ConfigDuration::secs(7 * 86_400),
        /// How often an outbox is polled if no notification arrives.
        outbox_poll: ConfigDuration = ConfigDuration::secs(2); positive,
        /// Changes of state that are buffered for a subscriber that does not read; it receives the
        /// number of those it missed.
        watch_changes_max: u32 = 10_000; positive,
        /// Largest number of subscribers to changes of state.
        watchers_max: u32 = 1_000,
        /// Largest number of subscribers of one tenant. 0: as many as are still free.
        tenant_watchers_max: u32 = 0,
    }
}
