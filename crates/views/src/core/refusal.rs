//! Why a query cannot be kept incrementally.

/// What of a query is not covered, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is, in SQL's words.
    pub construct: String,
    /// Where in the query it begins, in bytes from 1; none when it stands in a view that the query names.
    pub position: Option<usize>,
    /// What to do.
    pub advice: String,
}

impl Refusal {
    /// A construct, with its offset in bytes where that is known (negative where it is not).
    pub fn new(construct: impl Into<String>, offset: i32, advice: impl Into<String>) -> Self {
        Self {
            construct: construct.into(),
            position: usize::try_from(offset).ok().map(|offset| offset + 1),
            advice: advice.into(),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, into: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(into, "{}", self.construct)?;
        if let Some(position) = self.position {
            write!(into, " at position {position}")?;
        }
        write!(into, " is not maintained incrementally: {}", self.advice)
    }
}
