//! `info`: labels of the series that describe a target, added to those of the series that came from
//! it.

use std::collections::{BTreeMap, HashMap};

use egret_metrics_model::{LabelMatcher, Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher};

use super::super::error::QueryError;
use super::super::eval::{EvalContext, SeriesCollector};
use super::super::row::{Grid, LabeledRow, Row};
use super::super::select::SampleSelection;
use super::super::syntax::{
    Call, ExprKind, ExprNode, Position, RangeModifier, Selector, TimeModifiers, ValueType,
};

/// Where a target's description is, unless the call says otherwise.
const TARGET_INFO: &str = "target_info";
/// Labels that identify a target.
const IDENTIFYING: [&str; 2] = ["instance", "job"];

fn identity(labels: &Labels) -> Labels {
    Labels::new(IDENTIFYING.map(|name| (name, labels.get(name))))
}

/// Which descriptions are meant, and which of their labels.
fn matchers_of(call: &Call) -> Result<Vec<LabelMatcher>, QueryError> {
    let mut matchers: Vec<LabelMatcher> = match call.arguments.get(1).map(|node| &node.bare().part)
    {
        Some(ExprKind::Selector(selector)) => selector.matchers.clone(),
        Some(_) => {
            return Err(QueryError::execution(
                "info wants label matchers as its second argument",
            ));
        }
        None => Vec::new(),
    };
    let says_which = |matcher: &LabelMatcher| {
        let op = matcher.matcher().op;
        is_name(matcher) && matches!(op, MatchOp::Equal | MatchOp::Matches)
    };
    if !matchers.iter().any(says_which) {
        // Names that are not meant leave all the others that describe something.
        let (op, value) = if matchers.iter().any(is_name) {
            (MatchOp::Matches, ".+_info")
        } else {
            (MatchOp::Equal, TARGET_INFO)
        };
        let (name, value) = (METRIC_NAME.into(), value.into());
        matchers.push(LabelMatcher::new(Matcher { name, op, value })?);
    }
    Ok(matchers)
}

fn is_name(matcher: &LabelMatcher) -> bool {
    *matcher.matcher().name == *METRIC_NAME
}

impl EvalContext<'_> {
    pub(super) fn info(&self, call: &Call, grid: Grid) -> Result<Vec<LabeledRow>, QueryError> {
        let base = self.vector(&call.arguments[0], grid)?;
        let matchers = matchers_of(call)?;
        let selector = Selector {
            matchers,
            position: Position::default(),
            reach: self.reference(&call.arguments[0]),
            name: None,
            extension: RangeModifier::None,
            compares_resets: false,
        };
        let infos = self.infos(&selector, grid)?;
        let mut by_identity: HashMap<Labels, Vec<&LabeledRow>> = HashMap::new();
        for info in &infos {
            by_identity
                .entry(identity(&info.labels))
                .or_default()
                .push(info);
        }
        let (names, data): (Vec<_>, Vec<_>) = selector
            .matchers
            .iter()
            .partition(|matcher| is_name(matcher));
        let mut enriched = InfoJoin {
            env: self,
            data,
            by_labels: HashMap::new(),
            series: Vec::new(),
        };
        for one in &base {
            self.check_stop()?;
            let is_info = names
                .iter()
                .all(|matcher| matcher.matches(one.labels.metric()));
            let none = Vec::new();
            let identity = identity(&one.labels);
            let infos = if is_info || identity.is_empty() {
                &none
            } else {
                by_identity.get(&identity).unwrap_or(&none)
            };
            for step in (0..grid.count).filter(|step| one.row.has(*step)) {
                let labels = if is_info {
                    Some(one.labels.clone())
                } else {
                    enriched.labels(&one.labels, infos, step)?
                };
                if let Some(labels) = labels {
                    enriched.put(labels, one, step)?;
                }
            }
        }
        Ok(enriched.series)
    }

    /// Which time the descriptions are looked for at: that of the series they are for, where these
    /// are all of one.
    fn reference(&self, node: &ExprNode) -> TimeModifiers {
        let mut references = References::default();
        references.collect(node, &mut Vec::new());
        let References {
            found,
            is_elsewhere,
        } = references;
        let Some((first, others)) = found.split_first() else {
            return TimeModifiers::default();
        };
        let is_same = |other: &TimeModifiers| match (first.at, other.at) {
            (None, None) => first.offset.ms == other.offset.ms,
            (Some(_), Some(_)) => self.target(first, 0) == self.target(other, 0),
            _ => false,
        };
        if !is_elsewhere && others.iter().all(is_same) {
            first.clone()
        } else {
            TimeModifiers::default()
        }
    }

    /// The descriptions. Their times are wanted, not their values: of several the newest is true.
    fn infos(&self, selector: &Selector, grid: Grid) -> Result<Vec<LabeledRow>, QueryError> {
        let collected = |shown| {
            let parts = self.stream_selector(selector, grid, shown, &SeriesCollector::default)?;
            let series = parts.into_iter().flat_map(|part| part.series);
            Ok::<Vec<LabeledRow>, QueryError>(series.collect())
        };
        let is_histogram = |one: &LabeledRow| one.row.histograms.iter().any(Option::is_some);
        if collected(SampleSelection::Value)?.iter().any(is_histogram) {
            Err(QueryError::execution("info sample should be float"))
        } else {
            collected(SampleSelection::Time)
        }
    }
}

/// The times that an expression's series are of.
#[derive(Default)]
struct References {
    /// Of each selector, with what the subqueries around it add.
    found: Vec<TimeModifiers>,
    /// Something has no selector: it is of the step's own time.
    is_elsewhere: bool,
}

impl References {
    /// Looks through what yields series; false when there is no selector in it.
    fn collect<'a>(&mut self, node: &'a ExprNode, around: &mut Vec<&'a TimeModifiers>) -> bool {
        if !matches!(node.kind(), ValueType::Vector | ValueType::Matrix) {
            return false;
        }
        let is_found = match &node.part {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => {
                self.found.push(within(&selector.reach, around));
                true
            }
            ExprKind::Subquery(subquery) => {
                around.push(&subquery.reach);
                let is_found = self.collect(&subquery.inner, around);
                around.pop();
                is_found
            }
            ExprKind::Paren(inner) | ExprKind::Sign(inner, _) => self.collect(inner, around),
            ExprKind::Aggregate(aggregate) => self.collect(&aggregate.inner, around),
            ExprKind::Binary(binary) => {
                let left = self.collect(&binary.left, around);
                self.collect(&binary.right, around) || left
            }
            // Its second argument says which labels are wanted: it yields no series.
            ExprKind::Call(call) if call.name() == "info" => {
                self.collect(&call.arguments[0], around)
            }
            ExprKind::Call(call) => {
                let mut is_found = false;
                for argument in &call.arguments {
                    is_found |= self.collect(argument, around);
                }
                is_found
            }
            ExprKind::Number(..) | ExprKind::Text(_) => false,
        };
        self.is_elsewhere |= !is_found;
        is_found
    }
}

/// The time that a selector looks at within subqueries: their offsets add up until a time is named.
fn within(own: &TimeModifiers, around: &[&TimeModifiers]) -> TimeModifiers {
    let mut reach = own.clone();
    for outer in around.iter().rev() {
        if reach.at.is_some() {
            break;
        }
        reach.offset.ms = reach.offset.ms.saturating_add(outer.offset.ms);
        reach.at = outer.at;
    }
    reach
}

struct InfoJoin<'a> {
    env: &'a EvalContext<'a>,
    /// Which labels are wanted, and what they must be; all of them when empty.
    data: Vec<&'a LabelMatcher>,
    by_labels: HashMap<(Labels, bool), usize>,
    series: Vec<LabeledRow>,
}

impl InfoJoin<'_> {
    /// The labels of a series with those of its target; nothing when the target has not what is
    /// wanted.
    fn labels(
        &self,
        base: &Labels,
        infos: &[&LabeledRow],
        step: usize,
    ) -> Result<Option<Labels>, QueryError> {
        let mut labels = LabelsBuilder::from_labels(base);
        let mut added: HashMap<&str, &str> = HashMap::new();
        let mut newest: BTreeMap<&str, (f64, &LabeledRow)> = BTreeMap::new();
        for info in infos {
            let Some(time) = info.row.float(step) else {
                continue;
            };
            let best = newest.entry(info.labels.metric()).or_insert((time, info));
            if time == best.0 && best.1.labels != info.labels {
                let (old, new) = (&best.1.labels, &info.labels);
                return Err(QueryError::execution(format!(
                    "found duplicate series for info metric: existing {old} @ {time}, new {new} @ {time}"
                )));
            }
            if time > best.0 {
                *best = (time, info);
            }
        }
        for (_, info) in newest.values() {
            for (name, value) in info.labels.iter() {
                let wanted = self.data.is_empty()
                    || self
                        .data
                        .iter()
                        .any(|matcher| *matcher.matcher().name == *name);
                let is_own = name == METRIC_NAME || !base.get(name).is_empty();
                if !wanted || is_own {
                    continue;
                }
                if added
                    .insert(name, value)
                    .is_some_and(|other| other != value)
                {
                    return Err(QueryError::execution(format!("conflicting label: {name}")));
                }
                labels.set(name, value);
            }
        }
        let may_be_missing = self.data.iter().all(|matcher| matcher.matches(""));
        if newest.is_empty() && !may_be_missing {
            return Ok(None);
        }
        Ok(Some(labels.build()))
    }

    fn put(&mut self, labels: Labels, base: &LabeledRow, step: usize) -> Result<(), QueryError> {
        let key = (labels, base.drop_name);
        let at = match self.by_labels.get(&key) {
            Some(at) => *at,
            None => {
                let row = Row::absent(base.row.values.len());
                self.env.charge_bytes(row.size_bytes())?;
                self.series.push(LabeledRow {
                    labels: key.0.clone(),
                    drop_name: key.1,
                    row,
                });
                self.by_labels.insert(key, self.series.len() - 1);
                self.series.len() - 1
            }
        };
        self.series[at].row.set(step, base.row.get(step));
        Ok(())
    }
}
