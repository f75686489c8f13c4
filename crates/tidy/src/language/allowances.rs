//! How many findings of a rule a file may have: a list of numbers that only fall.

use std::collections::BTreeMap;

use super::{Counts, Survey};

/// Where the list lies.
pub const PATH: &str = "crates/tidy/allowances.txt";

const HEADER: &str = "\
# Findings of the house vocabulary that a file may still have: rule, path, count.
# The numbers may only fall. After a clean-up: cargo run -p egret-tidy --example language -- lower
# After a file was moved or split:  cargo run -p egret-tidy --example language -- move OLD NEW
";

/// Findings that a failure shows for one rule and file.
const SHOWN_MAX: usize = 20;

/// The list: a count for each rule and file that has findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    counts: Counts,
}

impl Allowances {
    /// Reads the list. Of two lines for one rule and file the smaller number holds: such lines are
    /// left by a merge of two branches that both lowered it.
    ///
    /// # Errors
    ///
    /// A line that is not `rule path count`, with its number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counts = BTreeMap::new();
        let lines = text.lines().enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let allowance = match words[..] {
                [rule, path, count] => count.parse().ok().map(|count| (rule, path, count)),
                _ => None,
            };
            let Some((rule, path, count)) = allowance else {
                let number = index + 1;
                return Err(format!("{PATH}:{number}: not `rule path count`: {line}"));
            };
            let entry = counts.entry((rule.to_owned(), path.to_owned()));
            let allowed: &mut usize = entry.or_insert(count);
            *allowed = count.min(*allowed);
        }
        Ok(Self { counts })
    }

    /// The list as it is written: sorted, one line for each rule and file, none with zero.
    pub fn render(&self) -> String {
        let lines = self
            .counts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|((rule, path), count)| format!("{rule} {path} {count}\n"));
        std::iter::once(HEADER.to_owned()).chain(lines).collect()
    }

    /// The number of findings that all files together may have of `rule`.
    pub fn total(&self, rule: &str) -> usize {
        let rule_counts = self.counts.iter().filter(|((name, _), _)| name == rule);
        rule_counts.map(|(_, count)| count).sum()
    }

    /// What differs between the list and the tree: one complaint for each rule and file.
    pub fn compare(&self, survey: &Survey) -> Vec<String> {
        let counts = survey.counts();
        let mut complaints = Vec::new();
        for (key @ (rule, path), count) in &counts {
            let allowed = self.counts.get(key).copied().unwrap_or_default();
            if *count > allowed {
                let locations = survey
                    .findings_of(rule)
                    .filter(|finding| finding.path == *path)
                    .take(SHOWN_MAX)
                    .map(|finding| format!("\n    {finding}"));
                complaints.push(format!(
                    "{path}: {rule}: {count} found, {allowed} allowed:{}",
                    locations.collect::<String>()
                ));
            }
        }
        for (key @ (rule, path), allowed) in &self.counts {
            let count = counts.get(key).copied().unwrap_or_default();
            if count < *allowed {
                complaints.push(format!(
                    "{path}: {rule}: {count} found, {allowed} allowed: lower the number with \
                     `cargo run -p egret-tidy --example language -- lower`"
                ));
            }
        }
        complaints
    }

    /// Lowers each number to what was found; raises none.
    pub fn lower(&mut self, counts: &Counts) {
        for (key, allowed) in &mut self.counts {
            *allowed = counts.get(key).copied().unwrap_or_default().min(*allowed);
        }
        self.counts.retain(|_, allowed| *allowed > 0);
    }

    /// Gives what `old` no longer needs to `new`, as far as `new` has more than it may have. Two
    /// paths that end with `/` stand for all files below them. No rule's total rises.
    pub fn transfer(&mut self, old: &str, new: &str, counts: &Counts) {
        let surplus: Vec<(String, String, usize)> = self
            .counts
            .iter()
            .filter(|((_, path), _)| path == old || (old.ends_with('/') && path.starts_with(old)))
            .filter_map(|(key, allowed)| {
                let count = counts.get(key).copied().unwrap_or_default();
                let unused = allowed.checked_sub(count).filter(|unused| *unused > 0)?;
                Some((key.0.clone(), key.1.clone(), unused))
            })
            .collect();
        for (rule, path, unused) in surplus {
            let relative_path = path.strip_prefix(old).unwrap_or_default();
            let target = (rule.clone(), format!("{new}{relative_path}"));
            let count = counts.get(&target).copied().unwrap_or_default();
            let allowed = self.counts.get(&target).copied().unwrap_or_default();
            let moved = count.saturating_sub(allowed).min(unused);
            if moved > 0 {
                *self.counts.entry(target).or_default() += moved;
                if let Some(source) = self.counts.get_mut(&(rule, path)) {
                    *source -= moved;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
