//! The settings of the documents engine.

use egret_base::settings::{ByteSize, ConfigDuration};

egret_base::settings! {
    /// Settings of the documents engine.
    pub struct DocumentsConfig in "documents" {
        /// Partitions of the tables for documents, aliases and earlier versions. A new value
        /// applies to databases that have no documents yet.
        partitions: u32 = 16; positive,
        /// Groups of writes in flight at the same time, in each database. Each takes a connection.
        writers: u32 = 2; positive,
        /// Largest number of writes in a group.
        group_max: u32 = 256; positive,
        /// Largest number of waiting writes in a database, and of documents that wait to be read;
        /// further requests are refused. One tenant has three quarters at most.
        waiting_max: u32 = 10_000; positive,
        /// Connections for reading documents, in each database.
        readers: u32 = 2; positive,
        /// Queries that run at the same time, in each database, each on its own connection; one
        /// tenant has three quarters at most. Further ones wait for up to `query_timeout` and are
        /// then refused.
        queries: u32 = 6; positive,
        /// Longest time for a query.
        query_timeout: ConfigDuration = ConfigDuration::secs(10); positive,
        /// Largest number of documents in a page.
        page_max: u32 = 1_000; positive,
        /// Bytes of the documents of a page, and separately of those embedded in it. A page ends
        /// before it exceeds them, but has at least one document; embedding more is refused.
        page_bytes_max: ByteSize = ByteSize::mib(16); positive,
        /// Exports that run at the same time, in each database; further ones are refused. Each
        /// takes a connection. One tenant has three quarters at most.
        exports: u32 = 3; positive,
        /// Largest size of a document.
        document_bytes_max: ByteSize = ByteSize::mib(1); positive,
        /// Aliases of documents in the cache, so that references to them need no lookup; one takes
        /// about 60 bytes.
        names_max: u32 = 500_000,
        /// Largest number of operations in a batch.
        batch_max: u32 = 1_000; positive,
        /// Largest number of documents that the change of one identity may affect.
        cascade_max: u32 = 100_000,
        /// Largest number of collections in a database.
        collections_max: u32 = 500,
        /// Largest number of paths in the identity of a collection; at most 64. A new value applies
        /// to what is declared from then on.
        identity_paths_max: u32 = 32; positive,
        /// Largest number of query paths of a collection; at most 256. Each adds a value for every
        /// document.
        query_paths_max: u32 = 64,
        /// Largest number of query paths of all collections of a database together.
        query_paths_total_max: u32 = 20_000,
        /// How long the response to a request with an `Idempotency-Key` is kept.
        requests_kept: ConfigDuration = ConfigDuration::secs(86_400),
        /// How long changes of documents are kept for clients and subscriptions that follow them.
        feed_kept: ConfigDuration = ConfigDuration::secs(604_800); positive,
        /// How often data past its retention is deleted.
        sweep_interval: ConfigDuration = ConfigDuration::secs(60); positive,
        /// Largest number of subscriptions to changes of documents, of each tenant and database.
        subscriptions_max: u32 = 100,
        /// Whether references are also declared as foreign keys, which makes writes less than half
        /// as fast. A new value applies to databases that have no documents yet.
        strict_foreign_keys: bool = false,
        /// How long to wait for a response of another Egret before its session counts as lost.
        owner_timeout: ConfigDuration = ConfigDuration::secs(5); positive,
    }
}
