//! The settings of the PostgreSQL underneath.

use std::path::PathBuf;

use egret_base::settings::Span;

egret_base::settings! {
    /// Settings of the PostgreSQL underneath.
    pub struct PostgresConfig in "postgres" {
        /// Connection string of a PostgreSQL 15 to 18 of your own; empty: Egret runs one itself.
        /// A password in it is masked wherever the configuration is shown.
        url: Option<String> = None,
        /// Directory with the programs `postgres`, `initdb` and `pg_ctl` to use; empty: the pinned
        /// release is fetched once, or a server found on this machine serves when offline.
        bin: Option<PathBuf> = None,
        /// Where fetched releases are kept; empty: `/var/cache/egret/postgres` for
        /// root, else `~/.cache/egret/postgres`.
        cache_dir: Option<PathBuf> = None,
        /// TCP port of the embedded server, on the loopback address only.
        port: u16 = 7433; positive,
        /// Largest number of sessions of the embedded server; memory per session follows from it.
        sessions_max: u32 = 200; positive,
        /// Operating-system user that PostgreSQL runs as when Egret is root (PostgreSQL refuses to
        /// run as root); created as a system user when it does not exist.
        run_as: String = "egret".to_owned(),
        /// How long a start of the server may take before it is reported; it is waited for all the
        /// same, since recovery after a crash takes as long as it takes.
        start_timeout: Span = Span::secs(120); positive,
        /// How long a clean stop may take before the server is told to stop immediately.
        stop_timeout: Span = Span::secs(30),
        /// How long opening a session may take, unless the connection string has a `connect_timeout`. Each
        /// address of the host, or of several hosts, has as long, and what follows once more.
        connect_timeout: Span = Span::secs(10); positive,
        /// How often what the embedded server added to its files is handed to the disk. Left alone,
        /// the kernel keeps it for half a minute and then writes all of it at once, and commits wait
        /// meanwhile. 0: left to the kernel.
        write_back_interval: Span = Span::secs(1),
        /// Requests that work in sessions of the server at a time, over all databases and engines, such as
        /// those for views and queries of documents. More wait for five seconds, and are refused then. One
        /// tenant has three quarters at most. Sessions that an engine keeps for its own work are beside
        /// these: see `documents.readers`, `documents.writers` and `views.refresh_parallel_max`.
        pool_connections_max: u32 = 40; positive,
    }
}
