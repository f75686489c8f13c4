//! Where the next page of a list begins.

use crate::core::entry::TaskState;
use crate::error::QueueError;

/// Where the next page of a list begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    pub state: usize,
    pub partition: usize,
    pub from: u64,
}

impl Cursor {
    pub(crate) fn parse(text: &str, states: &[TaskState]) -> Result<Self, QueueError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let mut parts = text.split('-').map(str::parse::<u64>);
        let mut part = || parts.next().and_then(Result::ok);
        let found = (|| {
            Some(Self { state: part()? as usize, partition: part()? as usize, from: part()? })
        })();
        let valid = found.filter(|at| at.state < states.len() && parts.next().is_none());
        valid.ok_or_else(|| QueueError::Invalid {
            what: "cursor",
            reason: format!("`{text}` does not come from a page of this list"),
        })
    }

    pub(crate) fn to_text(self) -> String {
        format!("{}-{}-{}", self.state, self.partition, self.from)
    }

    pub(crate) fn next_partition(self, partitions: usize) -> Self {
        match self.partition + 1 {
            next if next == partitions => Self { state: self.state + 1, ..Self::default() },
            partition => Self { state: self.state, partition, from: 0 },
        }
    }
}

#[cfg(test)]
mod tests;
