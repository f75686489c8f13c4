//! Which rules are requested, and how many groups at a time: the parameters of `/api/v1/rules`.

use egret_metrics_model::{LabelMatcher, Labels};
use xxhash_rust::xxh3::xxh3_64;

use super::status::{GroupStatus, RuleStatus, RulesStatus};

/// Type of a rule, as in the parameter `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleType {
    /// Alerting rules only (`type=alert`).
    Alert,
    /// Recording rules only (`type=record`).
    Record,
}

/// Selects rules. An empty list is no condition.
#[derive(Debug, Default)]
pub struct RuleFilter {
    /// Only rules of this type.
    pub kind: Option<RuleType>,
    /// With these names; empty for all.
    pub names: Vec<String>,
    /// In groups of these names.
    pub groups: Vec<String>,
    /// In files of these paths.
    pub files: Vec<String>,
    /// Of which one takes the rule's labels, as they are written.
    pub selectors: Vec<Vec<LabelMatcher>>,
    /// Without the alerts that are active.
    pub excludes_alerts: bool,
    /// Groups wanted at a time.
    pub groups_max: Option<usize>,
    /// Token of the next page, as the previous page returned it.
    pub next: Option<String>,
}

/// Token by which [`RuleFilter::next`] names a group.
fn page_token(group: &GroupStatus) -> String {
    let name = format!("{};{}", group.file, group.name);
    format!("{:016x}", xxh3_64(name.as_bytes()))
}

impl RulesStatus {
    /// The groups and rules that a filter selects. `None` when the group of the page token is gone.
    pub fn select(self, filter: &RuleFilter) -> Option<Self> {
        let groups_max = filter.groups_max.unwrap_or(usize::MAX);
        let mut groups = self.groups.into_iter().peekable();
        if let Some(next) = &filter.next {
            while groups.next_if(|group| page_token(group) != *next).is_some() {}
            groups.peek()?;
        }
        let mut selected = Self { groups: Vec::new(), group_next_token: None };
        for mut group in groups {
            if !is_among(&group.name, &filter.groups) || !is_among(&group.file, &filter.files) {
                continue;
            }
            group.rules.retain(|rule| filter.matches(rule));
            if group.rules.is_empty() {
                continue;
            }
            if selected.groups.len() == groups_max {
                selected.group_next_token = Some(page_token(&group));
                break;
            }
            if filter.excludes_alerts {
                group.rules.iter_mut().for_each(remove_alerts);
            }
            selected.groups.push(group);
        }
        Some(selected)
    }
}

fn is_among(name: &str, allowed: &[String]) -> bool {
    allowed.is_empty() || allowed.iter().any(|one| one == name)
}

fn remove_alerts(rule: &mut RuleStatus) {
    if let RuleStatus::Alerting { alerts, .. } = rule {
        *alerts = None;
    }
}

impl RuleFilter {
    fn matches(&self, rule: &RuleStatus) -> bool {
        let (kind, name, labels) = match rule {
            RuleStatus::Alerting { name, labels, .. } => (RuleType::Alert, name, labels),
            RuleStatus::Recording { name, labels, .. } => (RuleType::Record, name, labels),
        };
        let is_match = |matchers: &Vec<LabelMatcher>| matches_labels(matchers, labels);
        self.kind.is_none_or(|wanted| wanted == kind)
            && is_among(name, &self.names)
            && (self.selectors.is_empty() || self.selectors.iter().any(is_match))
    }
}

/// Whether a selector takes labels.
pub fn matches_labels(matchers: &[LabelMatcher], labels: &Labels) -> bool {
    let mut matchers = matchers.iter();
    matchers.all(|matcher| matcher.matches(labels.get(&matcher.matcher().name)))
}

#[cfg(test)]
mod tests;
