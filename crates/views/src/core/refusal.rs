//! Why a query cannot define a view, or not one that is maintained incrementally.

/// A construct of a query that is not supported, with its position and an alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the construct, in SQL's words.
    pub construct: String,
    /// Where it begins in the query, in bytes from 1; none if it is in a view that the query names.
    pub position: Option<usize>,
    /// What the caller can write instead.
    pub advice: String,
    /// Whether a view in mode full is refused as well.
    pub applies_to_every_mode: bool,
}

impl Refusal {
    /// A refusal of a construct at an offset in bytes; negative if that is not known.
    pub fn new(construct: impl Into<String>, offset: i32, advice: impl Into<String>) -> Self {
        Self {
            construct: construct.into(),
            position: usize::try_from(offset).ok().map(|offset| offset + 1),
            advice: advice.into(),
            applies_to_every_mode: false,
        }
    }

    /// A refusal that holds in every mode.
    pub(crate) fn in_every_mode(
        construct: impl Into<String>,
        position: Option<usize>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            construct: construct.into(),
            position,
            advice: advice.into(),
            applies_to_every_mode: true,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.construct)?;
        if let Some(position) = self.position {
            write!(f, " at position {position}")?;
        }
        let consequence = if self.applies_to_every_mode {
            "cannot be in a view"
        } else {
            "is not maintained incrementally"
        };
        write!(f, " {consequence}: {}", self.advice)
    }
}
