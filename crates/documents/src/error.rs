//! What can go wrong with documents.

use egret_base::{Coded, Kind};

use crate::model::Violation;

/// An error of the documents engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentsError {
    /// What is declared of collections is not what it should be.
    #[error("the definition is not valid: {}", listed(.violations))]
    DefinitionInvalid {
        /// All that is wrong with it, at most 100; pointers are into what was sent.
        violations: Vec<Violation>,
    },
    /// A document, or a change of one, is not what its collection allows.
    #[error("the document is not valid: {}", listed(.violations))]
    ValidationFailed {
        /// All that is wrong with it, at most 100.
        violations: Vec<Violation>,
    },
    /// What was sent is larger than it may be.
    #[error(
        "the body takes {bytes} bytes, numbers written out, and may take {bytes_max}, `{limit}`"
    )]
    PayloadTooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
        /// The name of that limit.
        limit: &'static str,
    },
}

/// The first violation, and how many more there are.
fn listed(violations: &[Violation]) -> String {
    match violations {
        [] => "it has a violation".to_owned(),
        [only] => only.to_string(),
        [first, more @ ..] => format!("{first} (and {} more)", more.len()),
    }
}

impl DocumentsError {
    /// A document that is wrong at one place.
    pub(crate) fn violation(violation: Violation) -> Self {
        Self::ValidationFailed {
            violations: vec![violation],
        }
    }
}

impl Coded for DocumentsError {
    fn code(&self) -> &'static str {
        match self {
            Self::DefinitionInvalid { .. } => "definition_invalid",
            Self::ValidationFailed { .. } => "validation_failed",
            Self::PayloadTooLarge { .. } => "payload_too_large",
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::DefinitionInvalid { .. } | Self::ValidationFailed { .. } => Kind::Invalid,
            Self::PayloadTooLarge { .. } => Kind::TooLarge,
        }
    }
}

#[cfg(test)]
mod tests;
