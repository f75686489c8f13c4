//! Named limits: everything that can grow has one, with a default and an error when it is hit.

mod count;
mod share;

pub use self::count::zero_on_underflow;
pub use self::share::{TenantShare, TenantUsage};
use crate::error::{CodedError, Kind};

/// A bound with the name under which it is configured and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The setting's name with its unit last, e.g. `query_rows_max`.
    pub name: &'static str,
    /// The largest value allowed.
    pub max: u64,
}

impl Limit {
    /// A limit with its name and largest allowed value.
    pub const fn new(name: &'static str, max: u64) -> Self {
        Self { name, max }
    }

    /// Accepts `asked` when it is within the limit.
    ///
    /// # Errors
    /// [`LimitExceeded`] with the limit's name when it is not.
    pub fn check(&self, asked: u64) -> Result<(), LimitExceeded> {
        if asked <= self.max {
            return Ok(());
        }
        Err(LimitExceeded { name: self.name, max: self.max, asked })
    }
}

/// A named limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("limit {name} is {max}, but {asked} is needed: ask for less or raise the setting")]
pub struct LimitExceeded {
    /// Name of the limit, for messages.
    pub name: &'static str,
    /// The largest value allowed.
    pub max: u64,
    /// What was asked for.
    pub asked: u64,
}

impl CodedError for LimitExceeded {
    fn code(&self) -> &'static str {
        "limit_exceeded"
    }

    fn kind(&self) -> Kind {
        Kind::LimitReached
    }
}

#[cfg(test)]
mod tests;
