//! The settings of the documents engine.

use egret_base::settings::{Size, Span};

egret_base::settings! {
    /// Settings of the documents engine.
    pub struct DocumentsConfig in "documents" {
        /// Partitions of the tables for documents, names and earlier versions. It holds for databases in which there are no documents yet.
        partitions: u32 = 16; positive,
        /// Groups of writes that are on their way at a time, in each database. Each takes a connection.
        writers: u32 = 2; positive,
        /// Writes of a group.
        group_max: u32 = 256; positive,
        /// Writes that wait in a database, and documents that wait to be read; more are refused. One tenant has three quarters at most.
        waiting_max: u32 = 10_000; positive,
        /// Connections by which documents are read, in each database.
        readers: u32 = 2; positive,
        /// Queries that run at a time, in each database, each in a connection; one tenant has three quarters at most. More wait, for as long
        /// as a query may take, and are refused then.
        queries: u32 = 6; positive,
        /// How long a query may take.
        query_timeout: Span = Span::secs(10); positive,
        /// Documents of a page.
        page_max: u32 = 1_000; positive,
        /// Bytes of the documents of a page, and again of those that are embedded in it. A page ends before it has more, with one document at
        /// least, and embedding more is refused.
        page_bytes_max: Size = Size::mib(16); positive,
        /// Exports that run at a time, in each database; more are refused. Each takes a connection. One tenant has three quarters at most.
        exports: u32 = 3; positive,
        /// Bytes of a document.
        document_bytes_max: Size = Size::mib(1); positive,
        /// Names of documents that are remembered, so that references to them need no look-up; one takes about 60 bytes.
        names_max: u32 = 500_000,
        /// Operations of a batch.
        batch_max: u32 = 1_000; positive,
        /// Documents that may change with one identity that does.
        cascade_max: u32 = 100_000,
        /// Collections in a database.
        collections_max: u32 = 500,
        /// How long the answer of a request with an `Idempotency-Key` is remembered.
        requests_kept: Span = Span::secs(86_400),
        /// How long it is remembered what became of documents, for those who follow.
        feed_kept: Span = Span::secs(604_800); positive,
        /// How often is looked for what has been kept for long enough.
        sweep_interval: Span = Span::secs(60); positive,
        /// Those who are told what becomes of documents, of each tenant and database.
        subscriptions_max: u32 = 100,
        /// Whether references are declared as foreign keys as well, which costs writers more than half of their speed. It holds for databases
        /// in which there are no documents yet.
        strict_foreign_keys: bool = false,
        /// How long another Egret's answer is waited for before its session is taken for lost.
        owner_timeout: Span = Span::secs(5); positive,
    }
}
