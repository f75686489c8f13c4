//! The settings of the series engine.

use egret_base::settings::{Size, Span};

egret_base::settings! {
    /// Settings of the series engine.
    pub struct SeriesConfig in "series" {
        /// Parts that series are spread over, each with a log and a thread of its own; fixed when the data
        /// directory is made. 0: as many as cores, at most 8.
        shards: u32 = 0,
        /// When samples are acknowledged: `fsync` (they are on disk), `interval` (they are written, and on disk
        /// after at most `sync_interval`) or `none` (they are written; a crash of the machine may lose them, one
        /// of Egret does not).
        durability: String = "fsync".to_owned(),
        /// With durability `interval`: the longest time until what is written is on disk.
        sync_interval: Span = Span::ms(100); positive,
        /// Series that are written to, or were in the last hours.
        series_max: u64 = 10_000_000; positive,
        /// Labels of a series, its name being one.
        labels_per_series_max: u64 = 128; positive,
        /// Largest name of a label.
        label_name_bytes_max: Size = Size(1 << 10); positive,
        /// Largest value of a label.
        label_value_bytes_max: Size = Size(64 << 10); positive,
        /// Samples further in the future than this are refused.
        future_max: Span = Span::secs(600),
        /// Samples older than this are deleted, and refused unless `keep` has a longer time for some series. 0: they are kept
        /// for ever.
        retention: Span = Span::secs(365 * 86_400),
        /// Series that are kept for another time than `retention`: `{selector} duration`, separated by semicolons. The
        /// first that takes a series counts. Example: `{job="debug"} 1d; {__name__=~"tmp_.*"} 6h`.
        keep: String = String::new(),
        /// Series of which old samples are thinned out: `{selector} after duration every duration`, separated by
        /// semicolons. The last sample of each interval stays. Example: `{job="node"} after 30d every 5m`.
        coarsen: String = String::new(),
        /// Space that blocks may take; over it the oldest are deleted. 0: as much as there is.
        size_max: Size = Size(0),
        /// How long after the end of a window of two hours its samples are written to a block, and how long after that of
        /// any window its blocks are merged: samples that come later than that make blocks of their own.
        settle: Span = Span::secs(30 * 60),
        /// Bytes of samples that merging blocks may read in a second, before compression. 0 counts as one byte.
        merge_rate: Size = Size::mib(64),
        /// Largest request as it comes in.
        request_bytes_max: Size = Size::mib(32); positive,
        /// Largest request after decompression.
        decoded_bytes_max: Size = Size::mib(256); positive,
        /// Requests that may wait for one shard; over it senders are told to come again.
        waiting_max: u32 = 16_384; positive,
        /// Bytes of samples that may wait for all shards together.
        waiting_bytes_max: Size = Size::mib(256); positive,
        /// Memory for samples that are not in blocks yet; over it those of a shard are written to blocks before
        /// their time.
        head_size: Size = Size::mib(512); positive,
        /// Samples that are only in the log and in memory; over it those of a shard are written to blocks before
        /// their time. A start reads all of them again.
        log_size: Size = Size::gib(1); positive,
        /// Size of a segment of the log.
        segment_size: Size = Size::mib(64); positive,
        /// Memory for what was read of blocks: their indexes, and times that series share.
        block_cache: Size = Size::mib(256),
        /// Of Prometheus servers that write the same series, one is listened to: the label that says which belong
        /// together. Both labels are named, or neither.
        ha_cluster_label: String = String::new(),
        /// The label that tells them apart. It is taken off.
        ha_replica_label: String = String::new(),
        /// How long nothing may come from the one that is listened to, until another is.
        ha_failover: Span = Span::secs(30); positive,
        /// Groups of such servers that may send at a time.
        ha_clusters_max: u32 = 100,
        /// How old the newest sample of a series may be for a query to see it.
        lookback: Span = Span::secs(300); positive,
        /// How long a query may take.
        query_timeout: Span = Span::secs(120); positive,
        /// Queries that are answered at a time; others wait. What lists series and labels counts as a query. 0 counts as
        /// 1.
        queries_max: u32 = 20,
        /// Threads that one query may use, at most 256; they are shared by all. 0: as many as cores.
        query_threads: u32 = 0,
        /// Samples that one query may read. 0: none; no value stands for no limit.
        query_samples_max: u64 = 500_000_000,
        /// Memory that the series that one query finds and its intermediate results may take. 0: none.
        query_memory_max: Size = Size::gib(2),
        /// Points that the answer to one query may have. 0: none.
        query_points_max: u64 = 20_000_000,
        /// Files with recording and alerting rules in Prometheus's format: paths, with `*` for any part of a name,
        /// separated by semicolons. Relative ones are below the directory that Egret was started in.
        rule_files: String = String::new(),
        /// Time between two evaluations of a group of rules that does not say it itself, and the step of subqueries that
        /// name none.
        evaluation_interval: Span = Span::secs(60); positive,
        /// Groups of rules that are evaluated at a time; others wait. 0 counts as 1.
        rule_groups_at_once: u32 = 2,
        /// Files with `scrape_configs` in Prometheus's format, as `rule_files`.
        scrape_files: String = String::new(),
        /// Time between two scrapes of a target, unless its job says it.
        scrape_interval: Span = Span::secs(15); positive,
        /// How long a scrape may take, unless its job says it; never longer than the interval.
        scrape_timeout: Span = Span::secs(10); positive,
        /// Largest page of a target, unless its job says it; over it the scrape fails.
        scrape_body_bytes_max: Size = Size::mib(64); positive,
        /// Targets of all jobs; with more, the files are refused.
        scrape_targets_max: u32 = 10_000,
        /// Targets that are scraped at a time; others wait.
        scrapes_at_once: u32 = 64; positive,
        /// Whether Egret keeps its own metrics, as those of a job `egret`.
        scrape_egret: bool = true,
        /// Whether it keeps the statistics of the PostgreSQL it runs on, as those of a job `postgres`.
        scrape_postgres: bool = true,
        /// The queue that takes a task for each alert that fires, and one when it is resolved: a queue of the tenant
        /// `default`. Empty: none.
        alert_queue: String = String::new(),
        /// Addresses that alerts are sent to, in the form of Alertmanager's webhooks, separated by semicolons.
        alert_webhooks: String = String::new(),
        /// Alertmanagers that are told of alerts, such as `http://127.0.0.1:9093`, separated by semicolons.
        alertmanagers: String = String::new(),
        /// After how long queue and webhooks are told again of an alert that still fires. 0: never.
        alert_repeat: Span = Span::secs(0),
        /// After how long whoever was not told, and each Alertmanager, is told again.
        alert_resend: Span = Span::secs(60); positive,
        /// Labels of all alerts, `name=value`, separated by commas.
        external_labels: String = String::new(),
        /// How others reach Egret, for links in alerts. Empty: by the address of the server.
        external_url: String = String::new(),
        /// Memory for what is said of metrics (type, unit, help); over it, what is new is not kept.
        metadata_bytes_max: Size = Size::mib(16),
    }
}
