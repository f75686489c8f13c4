//! Why a query cannot be that of a view, or not of one that is maintained incrementally.

/// What of a query is not covered, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it is, in SQL's words.
    pub construct: String,
    /// Where in the query it begins, in bytes from 1; none when it stands in a view that the query names.
    pub position: Option<usize>,
    /// What to do.
    pub advice: String,
    /// Whether a view in mode full is refused as well.
    pub is_of_every_mode: bool,
}

impl Refusal {
    /// A construct, with its offset in bytes where that is known (negative where it is not).
    pub fn new(construct: impl Into<String>, offset: i32, advice: impl Into<String>) -> Self {
        Self {
            construct: construct.into(),
            position: usize::try_from(offset).ok().map(|offset| offset + 1),
            advice: advice.into(),
            is_of_every_mode: false,
        }
    }

    /// A refusal that holds in every mode.
    pub fn of_every_mode(
        construct: impl Into<String>,
        position: Option<usize>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            construct: construct.into(),
            position,
            advice: advice.into(),
            is_of_every_mode: true,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, into: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(into, "{}", self.construct)?;
        if let Some(position) = self.position {
            write!(into, " at position {position}")?;
        }
        let refused = match self.is_of_every_mode {
            true => "cannot be in a view",
            false => "is not maintained incrementally",
        };
        write!(into, " {refused}: {}", self.advice)
    }
}
