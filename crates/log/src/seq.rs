//! Sequence numbers: the only address a record has.

/// The position of a record in its log. The first record is 1, each further one is one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// Where every log begins.
    pub const FIRST: Self = Self(1);

    /// The sequence number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The sequence number `count` records further on.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.checked_add(count).expect("2^64 records are more than any log lives to hold"))
    }

    /// The sequence number before this one; of 0 it is 0.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
