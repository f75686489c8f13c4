//! The settings of the series engine.

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_log::DurabilityMode;

egret_base::settings! {
    /// Settings of the series engine.
    pub struct SeriesConfig in "series" {
        /// Shards that series are distributed over, each with a log and a thread of its own; fixed
        /// when the data directory is created. 0: as many as cores, at most 8.
        shards: u32 = 0,
        /// When samples are acknowledged: `fsync` (they are on disk), `interval` (they are written,
        /// and on disk after at most `sync_interval`) or `none` (they are written; a crash of the
        /// machine may lose them, one of Egret does not).
        durability: DurabilityMode = DurabilityMode::Fsync,
        /// With durability `interval`: the longest time until what is written is on disk.
        sync_interval: ConfigDuration = ConfigDuration::ms(100); positive,
        /// Largest number of active series: those that are written to, or were in the last hours.
        series_max: u64 = 10_000_000; positive,
        /// Largest number of labels of a series, its name included.
        labels_per_series_max: u64 = 128; positive,
        /// Longest name of a label.
        label_name_bytes_max: ByteSize = ByteSize(1 << 10); positive,
        /// Longest value of a label.
        label_value_bytes_max: ByteSize = ByteSize(64 << 10); positive,
        /// Samples further in the future than this are refused.
        future_max: ConfigDuration = ConfigDuration::secs(600),
        /// Samples older than this are deleted, and refused unless `keep` has a longer time for
        /// some series. 0: they are kept forever.
        retention: ConfigDuration = ConfigDuration::secs(365 * 86_400),
        /// Series with another retention than `retention`: rules of the form `{selector} duration`,
        /// separated by semicolons. The first rule that selects a series applies. Example:
        /// `{job="debug"} 1d; {__name__=~"tmp_.*"} 6h`.
        keep: String = String::new(),
        /// Series whose old samples are downsampled: rules of the form `{selector} after duration
        /// every duration`, separated by semicolons. The last sample of each interval stays.
        /// Example: `{job="node"} after 30d every 5m`.
        coarsen: String = String::new(),
        /// Disk space that blocks may take; over it the oldest are deleted. 0: no limit.
        size_max: ByteSize = ByteSize(0),
        /// How long after the end of a two-hour window its samples are written to a block, and how
        /// long after the end of any window its blocks are merged. Samples that arrive later are
        /// written to separate blocks.
        settle: ConfigDuration = ConfigDuration::secs(30 * 60),
        /// Bytes of samples, before compression, that merging of blocks may read per second. 0
        /// counts as one byte.
        merge_rate: ByteSize = ByteSize::mib(64),
        /// Largest request as received.
        request_bytes_max: ByteSize = ByteSize::mib(32); positive,
        /// Largest request after decompression.
        decoded_bytes_max: ByteSize = ByteSize::mib(256); positive,
        /// Requests that may be queued for one shard; further ones are refused and can be retried.
        waiting_max: u32 = 16_384; positive,
        /// Bytes of samples that may be queued for all shards together.
        waiting_bytes_max: ByteSize = ByteSize::mib(256); positive,
        /// Memory for samples that are not in blocks yet; over it, the samples of a shard are
        /// written to blocks early.
        head_size: ByteSize = ByteSize::mib(512); positive,
        /// Samples that are only in the log and in memory; over it, the samples of a shard are
        /// written to blocks early. A start reads all of them again.
        log_size: ByteSize = ByteSize::gib(1); positive,
        /// Size of a segment of the log.
        segment_size: ByteSize = ByteSize::mib(64); positive,
        /// Memory for the block cache: indexes of blocks, and times that series share.
        block_cache: ByteSize = ByteSize::mib(256),
        /// Deduplication of redundant Prometheus servers (replicas) that write the same series:
        /// only the samples of one elected replica are accepted. This is the label that names the
        /// group of replicas (the cluster). Set both labels or neither.
        ha_cluster_label: String = String::new(),
        /// The label that names the replica within its cluster. It is removed from the samples.
        ha_replica_label: String = String::new(),
        /// How long the elected replica may send nothing before another one is elected.
        ha_failover: ConfigDuration = ConfigDuration::secs(30); positive,
        /// Largest number of such clusters at the same time.
        ha_clusters_max: u32 = 100,
        /// How old the newest sample of a series may be for a query to see it.
        lookback: ConfigDuration = ConfigDuration::secs(300); positive,
        /// How long a query may take.
        query_timeout: ConfigDuration = ConfigDuration::secs(120); positive,
        /// Queries that run at the same time; others wait. Listing series and labels counts as a
        /// query. 0 counts as 1.
        queries_max: u32 = 20,
        /// Threads that one query may use, at most 256; they are shared by all. 0: as many as
        /// cores.
        query_threads: u32 = 0,
        /// Samples that one query may read. 0: none; there is no value for no limit.
        query_samples_max: u64 = 500_000_000,
        /// Memory for the series that one query finds and its intermediate results. 0: none.
        query_memory_max: ByteSize = ByteSize::gib(2),
        /// Points that the answer to one query may have. 0: none.
        query_points_max: u64 = 20_000_000,
        /// Files with recording and alerting rules in Prometheus's format: paths, with `*` for any
        /// part of a name, separated by semicolons. Relative ones are below the directory that
        /// Egret was started in.
        rule_files: String = String::new(),
        /// Time between two evaluations of a rule group that sets no interval of its own, and the
        /// default step of subqueries.
        evaluation_interval: ConfigDuration = ConfigDuration::secs(60); positive,
        /// Rule groups that are evaluated at the same time; others wait. 0 counts as 1.
        rule_groups_at_once: u32 = 2,
        /// Files with `scrape_configs` in Prometheus's format, written like `rule_files`.
        scrape_files: String = String::new(),
        /// Time between two scrapes of a target, unless its job sets it.
        scrape_interval: ConfigDuration = ConfigDuration::secs(15); positive,
        /// How long a scrape may take, unless its job sets it; never longer than the interval.
        scrape_timeout: ConfigDuration = ConfigDuration::secs(10); positive,
        /// Largest response of a target, unless its job sets it; over it the scrape fails.
        scrape_body_bytes_max: ByteSize = ByteSize::mib(64); positive,
        /// Targets of all jobs; with more, the files are refused.
        scrape_targets_max: u32 = 10_000,
        /// Targets that are scraped at the same time; others wait.
        scrapes_at_once: u32 = 64; positive,
        /// Whether Egret stores its own metrics, as those of a job `egret`.
        scrape_egret: bool = true,
        /// Whether Egret stores the statistics of the PostgreSQL it runs on, as those of a job
        /// `postgres`.
        scrape_postgres: bool = true,
        /// Queue, of tenant `default`, that gets a task for each alert that fires and another one
        /// when the alert is resolved. Empty: none.
        alert_queue: String = String::new(),
        /// URLs that alerts are sent to, in the format of Alertmanager's webhooks, separated by
        /// semicolons.
        alert_webhooks: String = String::new(),
        /// URLs of Alertmanagers that alerts are sent to, such as `http://127.0.0.1:9093`,
        /// separated by semicolons.
        alertmanagers: String = String::new(),
        /// After how long the queue and webhooks are notified again of an alert that still fires.
        /// 0: never.
        alert_repeat: ConfigDuration = ConfigDuration::secs(0),
        /// After how long a failed notification is retried, and each Alertmanager is notified
        /// again.
        alert_resend: ConfigDuration = ConfigDuration::secs(60); positive,
        /// Labels that are added to all alerts: `name=value`, separated by commas.
        external_labels: String = String::new(),
        /// URL of Egret for links in alerts. Empty: the address of the server.
        external_url: String = String::new(),
        /// Memory for metadata of metrics (type, unit, help); over it, new metadata is not kept.
        metadata_bytes_max: ByteSize = ByteSize::mib(16),
    }
}
