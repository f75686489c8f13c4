//! Rights under which a view is created: what its query may read.

use std::fmt;
use std::sync::Arc;

use super::ViewName;

/// Whether role `egret_views`, which holds the rights of views without a named owner, may be given
/// missing privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// The role is given SELECT on what the query reads: an administrator creates the view.
    SelectOnSources,
    /// The role is given nothing, and a query that reads more than it may is refused.
    Nothing,
}

/// Rights under which a view is created or altered: what its query may read.
#[derive(Clone, Debug)]
pub struct MakerRights {
    /// Whether `egret_views` may be given privileges that the query needs.
    pub grants: Grants,
    /// The views that the query may read.
    pub readable: ReadableViews,
}

impl MakerRights {
    /// The rights of an administrator.
    pub fn administrator() -> Self {
        Self { grants: Grants::SelectOnSources, readable: ReadableViews::All }
    }
}

/// Says of each view whether a caller may read it.
pub type ViewFilter = Arc<dyn Fn(&ViewName) -> bool + Send + Sync>;

/// The views that a caller may read.
#[derive(Clone)]
pub enum ReadableViews {
    /// Every view, without a check.
    All,
    /// The views that the filter accepts.
    Matching(ViewFilter),
}

impl ReadableViews {
    /// Whether the caller may read the view of this name.
    pub fn allows(&self, name: &ViewName) -> bool {
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
