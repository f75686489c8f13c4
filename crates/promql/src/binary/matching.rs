//! Vector matching: which series of one side belongs to which of the other, at every step.

use std::collections::HashMap;

use egret_metrics_model::{Labels, LabelsBuilder, is_stale};

use super::super::annotations::Annotations;
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::keys::Keys;
use super::super::quick_hash::QuickHash;
use super::super::row::{Grid, LabeledRow, Point, Row, is_metadata};
use super::super::syntax::{Binary, MatchCardinality};
use super::operate::Operation;

const MUST_BE_EXPLICIT: &str =
    "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)";

const MUST_BE_UNIQUE: &str =
    "multiple matches for labels: grouping labels must ensure unique matches";

/// Indices of the two series that a result is of; a series that is filled in has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct MatchedPair {
    many: Option<usize>,
    one: Option<usize>,
}

/// Results as they are found.
struct MatchResults<'a> {
    env: &'a EvalContext<'a>,
    binary: &'a Binary,
    operation: Operation,
    many: &'a [LabeledRow],
    one: &'a [LabeledRow],
    steps: usize,
    /// Which result a pair of series belongs to.
    by_pair: HashMap<MatchedPair, usize, QuickHash>,
    by_labels: HashMap<(Labels, bool), usize, QuickHash>,
    series: Vec<LabeledRow>,
    /// Which step of which group is under way: they are counted.
    round: usize,
    /// Of each result, in which of them it was found last.
    taken: Vec<usize>,
}

/// An arithmetic operator or comparison between two vectors.
pub(super) fn matched(
    env: &EvalContext<'_>,
    binary: &Binary,
    operation: Operation,
    left: &[LabeledRow],
    right: &[LabeledRow],
    grid: Grid,
    notes: &mut Annotations,
) -> Result<Vec<LabeledRow>, QueryError> {
    let is_swapped = binary.cardinality == MatchCardinality::OneToMany;
    let (many, one) = if is_swapped {
        (right, left)
    } else {
        (left, right)
    };
    let mut results = MatchResults {
        env,
        binary,
        operation,
        many,
        one,
        steps: grid.count,
        by_pair: HashMap::default(),
        by_labels: HashMap::default(),
        series: Vec::new(),
        round: 0,
        taken: Vec::new(),
    };
    let mut keys = Keys::new(&binary.matching);
    // In the order of the many, so that the answer's order does not depend on hashing.
    let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for (at, series) in many.iter().enumerate() {
        let group = keys.group_of(&series.labels);
        groups.resize_with(keys.len(), Default::default);
        groups[group].0.push(at);
    }
    for (at, series) in one.iter().enumerate() {
        let group = keys.group_of(&series.labels);
        groups.resize_with(keys.len(), Default::default);
        groups[group].1.push(at);
    }
    let fills = binary.fill.0.is_some() || binary.fill.1.is_some();
    // Where nothing can match, nothing is too much.
    let is_compared = |step| fills || many.iter().any(|series| series.row.has(step));
    for (_, ones) in &groups {
        check_unique(one, ones, &keys, is_swapped, grid, is_compared)?;
    }
    for (manys, ones) in &groups {
        let is_matched = !manys.is_empty() && !ones.is_empty();
        if is_matched && results.quick_group(&keys, manys, ones)? {
            continue;
        }
        if is_matched || fills {
            let member = manys
                .first()
                .map(|at| &many[*at])
                .or_else(|| ones.first().map(|at| &one[*at]))
                .expect("a group has a series");
            let key = keys.labels_of(&member.labels);
            results.group(&key, manys, ones, notes)?;
        }
    }
    results.series.retain(|series| !series.row.is_empty());
    Ok(results.series)
}

/// On the side of the one, no two series of a group may have a sample at the same step, if the
/// other side has any.
fn check_unique(
    one: &[LabeledRow],
    members: &[usize],
    keys: &Keys<'_>,
    is_left: bool,
    grid: Grid,
    is_compared: impl Fn(usize) -> bool,
) -> Result<(), QueryError> {
    if members.len() < 2 {
        return Ok(());
    }
    for step in 0..grid.count {
        let mut present = members.iter().filter(|at| one[**at].row.has(step));
        if let (Some(first), Some(second)) = (present.next(), present.next())
            && is_compared(step)
        {
            let side = if is_left { "left" } else { "right" };
            let mut pair = [first, second].map(|at| braced(&one[*at].labels));
            pair.sort();
            let [first, second] = pair;
            let key = braced(&keys.labels_of(&one[members[0]].labels));
            return Err(QueryError::execution(format!(
                "found duplicate series for the match group {key} on the {side} hand-side of the operation: [{first}, {second}];many-to-many matching not allowed: matching labels must be unique on one side"
            )));
        }
    }
    Ok(())
}

/// Labels with the name among them, as messages of matching show them.
fn braced(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

impl MatchResults<'_> {
    /// All steps of a group that has one series on the side of the one, where there are numbers
    /// only; false when it is not so simple.
    fn quick_group(
        &mut self,
        keys: &Keys<'_>,
        many: &[usize],
        one: &[usize],
    ) -> Result<bool, QueryError> {
        let is_one_to_one = self.binary.cardinality == MatchCardinality::OneToOne;
        let [single] = one else {
            return Ok(false);
        };
        let has_histograms = |series: &LabeledRow| !series.row.histograms.is_empty();
        // Names tell results of comparisons apart, unless labels are taken from the one.
        let may_collide =
            !(self.operation.drops_name() || self.binary.include.is_empty()) && many.len() > 1;
        if may_collide
            || self.binary.operator.is_trim()
            || self.binary.fill != (None, None)
            || is_one_to_one && many.len() > 1
            || has_histograms(&self.one[*single])
            || many.iter().any(|at| has_histograms(&self.many[*at]))
        {
            return Ok(false);
        }
        self.env.check_stop()?;
        let key = keys.labels_of(&self.one[*single].labels);
        let is_swapped = self.binary.cardinality == MatchCardinality::OneToMany;
        let of_floats = self.operation.of_floats();
        let (manys, ones) = (self.many, self.one);
        for at in many {
            let pair = MatchedPair {
                many: Some(*at),
                one: Some(*single),
            };
            let result = self.result(&key, pair)?;
            let values = self.series[result].row.values.iter_mut();
            let pairs = manys[*at].row.values.iter().zip(&ones[*single].row.values);
            for (value, (point, other)) in values.zip(pairs) {
                if is_stale(*point) || is_stale(*other) {
                    continue;
                }
                let found = if is_swapped {
                    of_floats(*other, *point)
                } else {
                    of_floats(*point, *other)
                };
                if is_stale(found) {
                    continue;
                }
                if !is_stale(*value) {
                    return Err(QueryError::execution(MUST_BE_UNIQUE));
                }
                *value = found;
            }
        }
        Ok(true)
    }

    /// All steps of the series that have a signature.
    fn group(
        &mut self,
        key: &Labels,
        many: &[usize],
        one: &[usize],
        notes: &mut Annotations,
    ) -> Result<(), QueryError> {
        self.env.check_stop()?;
        // As in Prometheus, the left is the side of the many here, also where `group_right` makes
        // it the other one.
        let (fill_many, fill_one) = self.binary.fill;
        for step in 0..self.steps {
            let single = one.iter().copied().find(|at| self.one[*at].row.has(step));
            let other = match single {
                Some(at) => self.one[at].row.get(step),
                None => fill_one.map(Point::Float),
            };
            let Some(other) = other else {
                continue;
            };
            self.round += 1;
            let mut seen = false;
            for at in many {
                let Some(point) = self.many[*at].row.get(step) else {
                    continue;
                };
                let pair = MatchedPair {
                    many: Some(*at),
                    one: single,
                };
                let has_outcome = self.apply_match(key, pair, &point, &other, step, notes)?;
                if seen && has_outcome && self.binary.cardinality == MatchCardinality::OneToOne {
                    return Err(QueryError::execution(MUST_BE_EXPLICIT));
                }
                seen |= has_outcome;
            }
            if let (false, Some(_), Some(fill)) = (seen, single, fill_many) {
                let point = Point::Float(fill);
                let pair = MatchedPair {
                    many: None,
                    one: single,
                };
                self.apply_match(key, pair, &point, &other, step, notes)?;
            }
        }
        Ok(())
    }

    /// One pair of samples; false when the operator has no outcome for them. Two pairs with one
    /// result at a step are an error, even where a comparison does not hold.
    fn apply_match(
        &mut self,
        key: &Labels,
        pair: MatchedPair,
        point: &Point,
        other: &Point,
        step: usize,
        notes: &mut Annotations,
    ) -> Result<bool, QueryError> {
        let (left, right) = match self.binary.cardinality {
            MatchCardinality::OneToMany => (other, point),
            _ => (point, other),
        };
        let result = self.operation.points(left, right, notes);
        if !self.operation.has_outcome(left, right, result.as_ref()) {
            return Ok(false);
        }
        let at = match self.by_pair.get(&pair) {
            Some(at) => *at,
            None => self.result(key, pair)?,
        };
        let row = &mut self.series[at].row;
        if self.taken[at] == self.round || result.is_some() && row.has(step) {
            return Err(QueryError::execution(match self.binary.cardinality {
                MatchCardinality::OneToOne => MUST_BE_EXPLICIT,
                _ => MUST_BE_UNIQUE,
            }));
        }
        self.taken[at] = self.round;
        if result.is_some() {
            row.set(step, result);
        }
        Ok(true)
    }

    /// The result that a pair of series belongs to; two pairs may belong to one.
    fn result(&mut self, key: &Labels, pair: MatchedPair) -> Result<usize, QueryError> {
        let many = pair.many.map_or(key, |at| &self.many[at].labels);
        let one = pair.one.map_or(key, |at| &self.one[at].labels);
        let labels = self.labels(many, one);
        let drops = pair.many.is_some_and(|at| self.many[at].drop_name);
        let drop_name = self.operation.returns_bool || drops;
        let found = self.by_labels.get(&(labels.clone(), drop_name)).copied();
        let at = match found {
            Some(at) => at,
            None => {
                let row = Row::absent(self.steps);
                self.env.charge_bytes(row.size_bytes())?;
                self.series.push(LabeledRow {
                    labels: labels.clone(),
                    drop_name,
                    row,
                });
                self.taken.push(0);
                self.by_labels
                    .insert((labels, drop_name), self.series.len() - 1);
                self.series.len() - 1
            }
        };
        self.by_pair.insert(pair, at);
        Ok(at)
    }

    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let drops_name = self.operation.drops_name();
        let matching = &self.binary.matching;
        let is_one_to_one = self.binary.cardinality == MatchCardinality::OneToOne;
        let kept = many.iter().filter(|(name, _)| {
            let is_true = !(drops_name && is_metadata(name));
            is_true && (!is_one_to_one || matching.lists(name) == matching.only)
        });
        let kept = Labels::from_sorted(kept);
        if self.binary.include.is_empty() {
            return kept;
        }
        let mut labels = LabelsBuilder::from_labels(&kept);
        for name in &self.binary.include {
            match one.get(name) {
                "" => labels.remove(name),
                value => labels.set(name, value),
            };
        }
        labels.build()
    }
}
