//! Faults of the rules of a group that last from one evaluation to the next.

use egret_base::condition::ConditionSet;

/// Faults of the rules of one group, by file and rule. They end with the group.
pub(super) struct RuleFaults {
    failing: ConditionSet,
    unkept: ConditionSet,
}

impl RuleFaults {
    pub fn new() -> Self {
        Self {
            failing: ConditionSet::new("rules_failing"),
            unkept: ConditionSet::new("rules_results_not_kept"),
        }
    }

    /// Notes what went wrong in an evaluation of a rule; nothing when it went well.
    pub fn note_problems(&self, subject: &str, problems: &[String]) {
        if problems.is_empty() {
            self.failing.recover(subject, "a rule is evaluated again");
        } else {
            self.failing
                .fail(subject, problems.join("; "), "a rule failed; retrying");
        }
    }

    /// Notes whether the samples that a rule yields were written.
    pub fn note_written(&self, subject: &str, written: &Result<(), String>) {
        match written {
            Ok(()) => self
                .unkept
                .recover(subject, "what a rule yields is kept again"),
            Err(problem) => {
                let message = "what a rule yields was not kept; retrying";
                self.unkept.fail(subject, problem, message);
            }
        }
    }
}
