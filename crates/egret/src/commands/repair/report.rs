//! What a repair found, which parts it could not examine or mend, and how it says so.

use egret_log::repair::{Examination, Finding, UnexaminedPart};
use serde_json::{Value, json};

use crate::failure::Failure;

/// What is damaged or missing, and which parts could not be examined or mended.
pub(super) struct RepairReport {
    pub(super) findings: Vec<Finding>,
    pub(super) failures: Vec<PartFailure>,
}

/// A part that could not be examined or mended. The others are.
pub(super) struct PartFailure {
    pub(super) part: String,
    /// What was tried: `examine` or `mend`.
    pub(super) action: &'static str,
    pub(super) failure: Failure,
}

impl PartFailure {
    fn message(&self) -> String {
        let Self { part, action, failure } = self;
        format!("cannot {action} {part}: {failure}")
    }
}

impl RepairReport {
    /// Adds what was found of an engine.
    pub(super) fn add_examination(&mut self, examination: Examination) {
        self.findings.extend(examination.findings);
        let unexamined = examination.unexamined.into_iter();
        let failures = unexamined.map(|UnexaminedPart { part, error }| PartFailure {
            part,
            action: "examine",
            failure: super::into_failure(error),
        });
        self.failures.extend(failures);
    }

    /// Whether it says anything of an engine, or of a part of it.
    pub(super) fn mentions(&self, engine: &str) -> bool {
        let found = self.findings.iter().map(|finding| &finding.part);
        let failed = self.failures.iter().map(|failure| &failure.part);
        found.chain(failed).any(|part| part.starts_with(engine))
    }

    /// Leaves out what was found of other parts than the one of that name.
    ///
    /// # Errors
    /// When that part could not be examined, or nothing is wrong with it.
    pub(super) fn select(&mut self, part: &str) -> Result<(), Failure> {
        let failed = self.failures.iter().position(|failure| failure.part == part);
        if let Some(index) = failed {
            return Err(self.failures.swap_remove(index).failure);
        }
        if !self.findings.iter().any(|finding| finding.part == part) {
            return Err(self.not_damaged_failure(part));
        }
        self.findings.retain(|finding| finding.part == part);
        Ok(())
    }

    /// The part that was named is not among the damaged ones: it is whole, or there is none of that
    /// name.
    fn not_damaged_failure(&self, part: &str) -> Failure {
        let findings = self.findings.iter();
        let damaged: Vec<&str> = findings.map(|finding| finding.part.as_str()).collect();
        let mut message = if damaged.is_empty() {
            format!("no part `{part}` is damaged or missing; nothing is damaged or missing")
        } else {
            let damaged = damaged.join(", ");
            format!("no part `{part}` is damaged or missing; damaged or missing: {damaged}")
        };
        for failure in &self.failures {
            message.push_str("; ");
            message.push_str(&failure.message());
        }
        Failure::failed("part_not_damaged", message)
    }

    /// Whether a part was mended, where all that were found should be.
    fn is_repaired(&self, part: &str) -> bool {
        !self.failures.iter().any(|failure| failure.part == part)
    }

    pub(super) fn to_json(&self, is_confirmed: bool) -> Value {
        let items = self.findings.iter().map(|finding| {
            json!({
                "part": finding.part,
                "problem": finding.problem,
                "action": finding.action,
                "loss": finding.loss,
                "done": is_confirmed && self.is_repaired(&finding.part),
            })
        });
        let failed = self.failures.iter().map(|failure| {
            json!({
                "part": failure.part,
                "code": failure.failure.code,
                "reason": failure.message(),
            })
        });
        let (items, failed): (Vec<Value>, Vec<Value>) = (items.collect(), failed.collect());
        json!({ "items": items, "failed": failed })
    }

    pub(super) fn to_text(&self, is_confirmed: bool) -> String {
        if self.findings.is_empty() {
            let text = if self.failures.is_empty() {
                "nothing is damaged or missing\n"
            } else {
                "nothing is damaged or missing in what could be examined\n"
            };
            return text.to_owned();
        }
        let mut text = String::new();
        for finding in &self.findings {
            let Finding { part, problem, action, loss } = finding;
            let (done_label, lost_label) = if is_confirmed && self.is_repaired(part) {
                ("done", "lost")
            } else {
                ("would be done", "would be lost")
            };
            text.push_str(&format!(
                "{part}\n  problem  {problem}\n  {done_label}: {action}\n  {lost_label}: {loss}\n"
            ));
        }
        text.push_str(if is_confirmed {
            "the previous files are kept beside it, under names with `.damaged-`\n"
        } else {
            "nothing was changed; to repair: egret repair [PART] --yes\nthe present files are \
             then kept beside it, under names with `.damaged-`\n"
        });
        text
    }

    /// Fails where a part could not be examined or mended.
    ///
    /// # Errors
    /// All those parts, with the reason of each.
    pub(super) fn fail_if_incomplete(&self) -> Result<(), Failure> {
        let messages: Vec<String> = self.failures.iter().map(PartFailure::message).collect();
        let code = match self.failures.as_slice() {
            [] => return Ok(()),
            [only] => only.failure.code.as_str(),
            _ => "repair_incomplete",
        };
        Err(Failure::failed(code, messages.join("; ")))
    }
}
