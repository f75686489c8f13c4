//! The settings of the PostgreSQL underneath.

use std::path::PathBuf;

use egret_base::settings::ConfigDuration;

egret_base::settings! {
    /// Settings of the PostgreSQL underneath.
    pub struct PostgresConfig in "postgres" {
        /// Connection string of a PostgreSQL 15 to 18 of your own; empty: Egret runs one itself.
        /// A password in it is masked wherever the configuration is shown.
        url: Option<String> = None,
        /// Directory with the programs `postgres`, `initdb` and `pg_ctl` to use; empty: the pinned
        /// release is downloaded once, or, if Egret is offline, a server installed on this machine
        /// is used.
        bin: Option<PathBuf> = None,
        /// Where downloaded releases are kept; empty: `/var/cache/egret/postgres` for root, else
        /// `~/.cache/egret/postgres`.
        cache_dir: Option<PathBuf> = None,
        /// TCP port of the embedded server, on the loopback address only.
        port: u16 = 7433; positive,
        /// Largest number of sessions of the embedded server; the memory per session is derived
        /// from it.
        sessions_max: u32 = 200; positive,
        /// Operating-system user that PostgreSQL runs as when Egret is root (PostgreSQL refuses to
        /// run as root); created as a system user when it does not exist.
        run_as: String = "egret".to_owned(),
        /// How long a start of the server may take before a warning is logged; Egret keeps waiting,
        /// since recovery after a crash may take long.
        start_timeout: ConfigDuration = ConfigDuration::secs(120); positive,
        /// How long a clean stop may take before the server is stopped immediately.
        stop_timeout: ConfigDuration = ConfigDuration::secs(30),
        /// How long opening a session may take, unless the connection string has a
        /// `connect_timeout`. The time applies to each address of each host, and once more to what
        /// follows.
        connect_timeout: ConfigDuration = ConfigDuration::secs(10); positive,
        /// How often new data in the files of the embedded server is written back to disk.
        /// Otherwise the kernel collects it for half a minute and then writes all of it at once,
        /// and commits wait meanwhile. 0: left to the kernel.
        write_back_interval: ConfigDuration = ConfigDuration::secs(1),
        /// Requests that use a session of the server at the same time, over all databases and
        /// engines, such as those for views and queries of documents. Further requests wait for up
        /// to five seconds and are then refused. One tenant has three quarters at most. Sessions
        /// that an engine keeps for its own work are not counted: see `documents.readers`,
        /// `documents.writers` and `views.refresh_parallel_max`.
        pool_connections_max: u32 = 40; positive,
    }
}
