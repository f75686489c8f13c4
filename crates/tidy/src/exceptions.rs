//! What may break a rule, and why. An exception that no finding needs any more is an error, so the
//! list can only hold what is true.

use crate::Finding;

/// A finding that is allowed, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// Name of the rule that is broken.
    pub rule: &'static str,
    /// Path of the file, relative to the root.
    pub path: &'static str,
    /// Subject of the finding, such as a function's name.
    pub subject: &'static str,
    /// Why the rule does not serve here.
    pub reason: &'static str,
}

/// Every exception of this repository.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: "import-circle",
        path: "crates/views/src/core/analyse.rs",
        subject: "core::analyse and files below it",
        reason: "a recursive descent through a query, whose parts hold each other",
    },
    Exception {
        rule: "long-function",
        path: "crates/documents/src/core/openapi/parameters.rs",
        subject: "all",
        reason: "a table of parameters, one after the other",
    },
    Exception {
        rule: "long-function",
        path: "crates/server/tests/it/branches/rig.rs",
        subject: "build",
        reason: "the whole wiring in one place, as the binary has it over several files",
    },
];

/// The findings that no exception covers, then the exceptions that cover no finding.
pub fn apply_exceptions(findings: &[Finding], exceptions: &[Exception]) -> Vec<String> {
    let covers = |exception: &Exception, finding: &Finding| {
        exception.rule == finding.rule
            && exception.path == finding.path
            && exception.subject == finding.subject
    };
    let breaches = findings
        .iter()
        .filter(|finding| !exceptions.iter().any(|exception| covers(exception, finding)))
        .map(Finding::to_string);
    let stale = exceptions
        .iter()
        .filter(|exception| !findings.iter().any(|finding| covers(exception, finding)))
        .map(|exception| {
            format!(
                "exceptions.rs: {} for `{}` in {} is no longer needed: remove it",
                exception.rule, exception.subject, exception.path
            )
        });
    let unreasoned = exceptions
        .iter()
        .filter(|exception| exception.reason.split_whitespace().count() < 3)
        .map(|exception| {
            format!(
                "exceptions.rs: {} for `{}` in {} gives no reason",
                exception.rule, exception.subject, exception.path
            )
        });
    breaches.chain(stale).chain(unreasoned).collect()
}

#[cfg(test)]
mod tests;
