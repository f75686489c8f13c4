//! Maps series to groups by the labels that they are grouped or matched by, without building the
//! label set of every series: only the first series of a group needs it.

use std::collections::HashMap;

use egret_metrics_model::{Labels, METRIC_NAME};

use super::quick_hash::QuickHash;
use super::syntax::Grouping;

/// No label has this byte: it is in no UTF-8.
const SEPARATOR: u8 = 0xff;

/// Groups by what tells them apart.
pub(crate) struct Keys<'a> {
    grouping: &'a Grouping,
    /// Names are labels like all others.
    includes_names: bool,
    key: Vec<u8>,
    groups: HashMap<Box<[u8]>, usize, QuickHash>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(grouping: &'a Grouping) -> Self {
        Self { grouping, includes_names: false, key: Vec::new(), groups: HashMap::default() }
    }

    /// Groups of which the name is part unless it is listed as one that is not.
    pub(crate) fn new_with_names(grouping: &'a Grouping) -> Self {
        Self { includes_names: true, ..Self::new(grouping) }
    }

    /// The number of a series' group, counted from 0 as they come. One that equals the number of
    /// groups before is new.
    pub(crate) fn group_index(&mut self, labels: &Labels) -> usize {
        if self.grouping.is_inclusive && self.grouping.labels.is_empty() && !self.groups.is_empty()
        {
            return 0;
        }
        self.key.clear();
        for (name, value) in key_labels(labels, self.grouping, self.includes_names) {
            for part in [name, value] {
                self.key.extend_from_slice(part.as_bytes());
                self.key.push(SEPARATOR);
            }
        }
        if let Some(group) = self.groups.get(&*self.key) {
            return *group;
        }
        let group = self.groups.len();
        self.groups.insert(self.key.as_slice().into(), group);
        group
    }

    /// Number of groups so far.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The labels of a series' group.
    pub(crate) fn group_labels(&self, labels: &Labels) -> Labels {
        Labels::from_sorted(key_labels(labels, self.grouping, self.includes_names))
    }
}

/// The labels by which series are put together. Both the labels and those that are listed are
/// sorted.
fn key_labels<'a>(
    labels: &'a Labels,
    grouping: &'a Grouping,
    includes_names: bool,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut listed = grouping.labels.iter().map(|name| &**name).peekable();
    let mut labels = labels.iter();
    std::iter::from_fn(move || {
        loop {
            if grouping.is_inclusive {
                // What comes after the last that is listed is of no interest.
                listed.peek()?;
            }
            let (name, value) = labels.next()?;
            while listed.next_if(|other| *other < name).is_some() {}
            let is_listed = listed.next_if(|other| *other == name).is_some();
            let is_kept = if grouping.is_inclusive {
                is_listed
            } else {
                !is_listed && (includes_names || name != METRIC_NAME)
            };
            if is_kept {
                return Some((name, value));
            }
        }
    })
}
