//! Faults of the rules of a group that last from one evaluation to the next.

use egret_base::condition::ConditionSet;

/// Faults of the rules of one group, by file and rule. They end with the group.
pub(super) struct RuleFaults {
    evaluation_faults: ConditionSet,
    write_faults: ConditionSet,
}

impl RuleFaults {
    pub(crate) fn new() -> Self {
        Self {
            evaluation_faults: ConditionSet::new("rules_failing"),
            write_faults: ConditionSet::new("rules_results_not_kept"),
        }
    }

    /// Notes what went wrong in an evaluation of a rule; nothing when it went well.
    pub(crate) fn note_problems(&self, subject: &str, problems: &[String]) {
        if problems.is_empty() {
            self.evaluation_faults.recover(subject, "a rule is evaluated again");
        } else {
            self.evaluation_faults.fail(
                subject,
                problems.join("; "),
                "cannot evaluate a rule; retrying",
            );
        }
    }

    /// Notes whether the samples that a rule yields were written.
    pub(crate) fn note_written(&self, subject: &str, written: &Result<(), String>) {
        match written {
            Ok(()) => {
                self.write_faults.recover(subject, "writing the result of a rule works again")
            }
            Err(problem) => {
                let message = "cannot write the result of a rule; retrying";
                self.write_faults.fail(subject, problem, message);
            }
        }
    }
}
