//! State of a view's sources and storage, read at the start of a refresh.

/// The refresh point of a view, as a parameter of its statements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frontier<'a> {
    /// Snapshot of the refresh point, as text of `pg_snapshot`.
    pub snapshot: &'a str,
    /// Time of the refresh point, to the microsecond, if the view depends on the clock.
    pub clock: Option<&'a str>,
}

/// State of a view's sources and storage before a refresh.
pub(crate) struct ViewStatus {
    /// Snapshot that the view shows; none if it must be rebuilt.
    pub shown_snapshot: Option<String>,
    /// Time at that snapshot, if the view depends on the clock.
    pub clock: Option<String>,
    /// Fingerprint of the server, tables, partitions and files: if it differs from the stored one,
    /// rows may have changed without a trigger, and the view is rebuilt.
    pub stamp: String,
    /// Names and columns of its tables.
    pub signature: String,
    /// Whether the change log keeps rows for this view: it has a refresh point, or its rebuild has
    /// reserved one.
    pub is_claimed: bool,
    /// Whether the view is suspended and must not be refreshed.
    pub is_suspended: bool,
    /// The snapshot in which the status was read.
    pub current_snapshot: String,
}

impl ViewStatus {
    /// The refresh point of the view; none if it must be rebuilt.
    pub(crate) fn frontier(&self) -> Option<Frontier<'_>> {
        Some(Frontier { snapshot: self.shown_snapshot.as_deref()?, clock: self.clock.as_deref() })
    }
}
