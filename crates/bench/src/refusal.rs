//! The two kinds of failure that have an exit code of their own; every other one is exit code 1.

/// A failure that a script may want to tell from others. It travels inside an [`anyhow::Error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The command line or a file it names is wrong: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A server does not answer: exit code 3.
    #[error("{0}")]
    Unreachable(String),
}

/// An [`anyhow::Error`] about wrong usage.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Refusal::Usage(message.into()).into()
}

/// An [`anyhow::Error`] about a server that does not answer.
pub(crate) fn unreachable(message: impl Into<String>) -> anyhow::Error {
    Refusal::Unreachable(message.into()).into()
}
