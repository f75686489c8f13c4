//! What the maker of a view may have it read.

use std::fmt;
use std::sync::Arc;

use super::ViewName;

/// Whether role `egret_views`, which views without a named owner have the rights of, is given rights that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// It is given SELECT on what a query reads: an administrator makes the view.
    Reads,
    /// It is given nothing, and a query that reads more than it may is refused.
    Nothing,
}

/// What the caller who makes or changes a view may have it read.
#[derive(Clone, Debug)]
pub struct MakerRights {
    /// What `egret_views` may be given to read what the query reads.
    pub grants: Grants,
    /// The views that the query may read.
    pub readable: ReadableViews,
}

impl MakerRights {
    /// The rights of an administrator.
    pub fn all() -> Self {
        Self {
            grants: Grants::Reads,
            readable: ReadableViews::All,
        }
    }
}

/// Says of each view whether a caller may read it.
pub type ViewFilter = Arc<dyn Fn(&ViewName) -> bool + Send + Sync>;

/// The views that a caller may read.
#[derive(Clone)]
pub enum ReadableViews {
    /// Every view.
    All,
    /// Those that the filter accepts.
    Matching(ViewFilter),
}

impl ReadableViews {
    /// Whether a view is one of them.
    pub fn covers(&self, name: &ViewName) -> bool {
        match self {
            Self::All => true,
            Self::Matching(filter) => filter(name),
        }
    }
}

impl fmt::Debug for ReadableViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Matching(_) => "Matching",
        })
    }
}
