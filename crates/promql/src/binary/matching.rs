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
    many_index: Option<usize>,
    one_index: Option<usize>,
}

/// Results as they are found.
struct MatchResults<'a> {
    env: &'a EvalContext<'a>,
    binary: &'a Binary,
    operation: Operation,
    many_side: &'a [LabeledRow],
    one_side: &'a [LabeledRow],
    steps: usize,
    /// Which result a pair of series belongs to.
    by_pair: HashMap<MatchedPair, usize, QuickHash>,
    by_labels: HashMap<(Labels, bool), usize, QuickHash>,
    series: Vec<LabeledRow>,
    /// Which step of which group is under way: they are counted.
    match_round: usize,
    /// Of each result, in which of them it was found last.
    last_rounds: Vec<usize>,
}

/// An arithmetic operator or comparison between two vectors.
pub(super) fn match_vectors(
    env: &EvalContext<'_>,
    binary: &Binary,
    operation: Operation,
    left: &[LabeledRow],
    right: &[LabeledRow],
    grid: Grid,
    notes: &mut Annotations,
) -> Result<Vec<LabeledRow>, QueryError> {
    let is_swapped = binary.cardinality == MatchCardinality::OneToMany;
    let (many_side, one_side) = if is_swapped { (right, left) } else { (left, right) };
    let mut results = MatchResults {
        env,
        binary,
        operation,
        many_side,
        one_side,
        steps: grid.count,
        by_pair: HashMap::default(),
        by_labels: HashMap::default(),
        series: Vec::new(),
        match_round: 0,
        last_rounds: Vec::new(),
    };
    let mut keys = Keys::new(&binary.matching);
    // In the order of the many, so that the answer's order does not depend on hashing.
    let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for (index, series) in many_side.iter().enumerate() {
        let group = keys.group_index(&series.labels);
        groups.resize_with(keys.len(), Default::default);
        groups[group].0.push(index);
    }
    for (at, series) in one_side.iter().enumerate() {
        let group = keys.group_index(&series.labels);
        groups.resize_with(keys.len(), Default::default);
        groups[group].1.push(at);
    }
    let has_fill = binary.fill.0.is_some() || binary.fill.1.is_some();
    // Where nothing can match, nothing is too much.
    let is_compared = |step| has_fill || many_side.iter().any(|series| series.row.has_sample(step));
    for (_, one_indexes) in &groups {
        check_unique(one_side, one_indexes, &keys, is_swapped, grid, is_compared)?;
    }
    for (many_indexes, ones) in &groups {
        let is_matched = !many_indexes.is_empty() && !ones.is_empty();
        if is_matched && results.match_floats_fast(&keys, many_indexes, ones)? {
            continue;
        }
        if is_matched || has_fill {
            let member = many_indexes
                .first()
                .map(|at| &many_side[*at])
                .or_else(|| ones.first().map(|at| &one_side[*at]))
                .expect("a group has a series");
            let key = keys.group_labels(&member.labels);
            results.match_group(&key, many_indexes, ones, notes)?;
        }
    }
    results.series.retain(|series| !series.row.is_empty());
    Ok(results.series)
}

/// On the side of the one, no two series of a group may have a sample at the same step, if the
/// other side has any.
fn check_unique(
    one_side: &[LabeledRow],
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
        let mut present = members.iter().filter(|at| one_side[**at].row.has_sample(step));
        if let (Some(first), Some(second)) = (present.next(), present.next())
            && is_compared(step)
        {
            let side = if is_left { "left" } else { "right" };
            let mut pair = [first, second].map(|at| format_labels(&one_side[*at].labels));
            pair.sort();
            let [first, second] = pair;
            let key = format_labels(&keys.group_labels(&one_side[members[0]].labels));
            return Err(QueryError::execution(format!(
                "found duplicate series for the match group {key} on the {side} hand-side of the operation: [{first}, {second}];many-to-many matching not allowed: matching labels must be unique on one side"
            )));
        }
    }
    Ok(())
}

/// Labels with the name among them, as messages of matching show them.
fn format_labels(labels: &Labels) -> String {
    let pairs: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

impl MatchResults<'_> {
    /// All steps of a group that has one series on the side of the one, where there are numbers
    /// only; false when it is not so simple.
    fn match_floats_fast(
        &mut self,
        keys: &Keys<'_>,
        many_indexes: &[usize],
        one_indexes: &[usize],
    ) -> Result<bool, QueryError> {
        let is_one_to_one = self.binary.cardinality == MatchCardinality::OneToOne;
        let [one_index] = one_indexes else {
            return Ok(false);
        };
        let has_histograms = |series: &LabeledRow| !series.row.histograms.is_empty();
        // Names tell results of comparisons apart, unless labels are taken from the one.
        let may_collide = !(self.operation.drops_name() || self.binary.include.is_empty())
            && many_indexes.len() > 1;
        if may_collide
            || self.binary.operator.is_trim()
            || self.binary.fill != (None, None)
            || is_one_to_one && many_indexes.len() > 1
            || has_histograms(&self.one_side[*one_index])
            || many_indexes.iter().any(|at| has_histograms(&self.many_side[*at]))
        {
            return Ok(false);
        }
        self.env.check_stop()?;
        let key = keys.group_labels(&self.one_side[*one_index].labels);
        let is_swapped = self.binary.cardinality == MatchCardinality::OneToMany;
        let float_fn = self.operation.float_fn();
        let (many_side, one_side) = (self.many_side, self.one_side);
        for index in many_indexes {
            let pair = MatchedPair { many_index: Some(*index), one_index: Some(*one_index) };
            let result = self.find_or_add_result(&key, pair)?;
            let values = self.series[result].row.values.iter_mut();
            let pairs = many_side[*index].row.values.iter().zip(&one_side[*one_index].row.values);
            for (value, (point, other)) in values.zip(pairs) {
                if is_stale(*point) || is_stale(*other) {
                    continue;
                }
                let found =
                    if is_swapped { float_fn(*other, *point) } else { float_fn(*point, *other) };
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
    fn match_group(
        &mut self,
        key: &Labels,
        many_indexes: &[usize],
        one_indexes: &[usize],
        notes: &mut Annotations,
    ) -> Result<(), QueryError> {
        self.env.check_stop()?;
        // As in Prometheus, the left is the side of the many here, also where `group_right` makes
        // it the other one.
        let (fill_many, fill_one) = self.binary.fill;
        for step in 0..self.steps {
            let one_index =
                one_indexes.iter().copied().find(|at| self.one_side[*at].row.has_sample(step));
            let other = match one_index {
                Some(at) => self.one_side[at].row.get(step),
                None => fill_one.map(Point::Float),
            };
            let Some(other) = other else {
                continue;
            };
            self.match_round += 1;
            let mut has_match = false;
            for index in many_indexes {
                let Some(point) = self.many_side[*index].row.get(step) else {
                    continue;
                };
                let pair = MatchedPair { many_index: Some(*index), one_index };
                let has_outcome = self.apply_match(key, pair, &point, &other, step, notes)?;
                if has_match && has_outcome && self.binary.cardinality == MatchCardinality::OneToOne
                {
                    return Err(QueryError::execution(MUST_BE_EXPLICIT));
                }
                has_match |= has_outcome;
            }
            if let (false, Some(_), Some(fill)) = (has_match, one_index, fill_many) {
                let point = Point::Float(fill);
                let pair = MatchedPair { many_index: None, one_index };
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
        let result = self.operation.apply(left, right, notes);
        if !self.operation.has_outcome(left, right, result.as_ref()) {
            return Ok(false);
        }
        let result_index = match self.by_pair.get(&pair) {
            Some(at) => *at,
            None => self.find_or_add_result(key, pair)?,
        };
        let row = &mut self.series[result_index].row;
        if self.last_rounds[result_index] == self.match_round
            || result.is_some() && row.has_sample(step)
        {
            return Err(QueryError::execution(match self.binary.cardinality {
                MatchCardinality::OneToOne => MUST_BE_EXPLICIT,
                _ => MUST_BE_UNIQUE,
            }));
        }
        self.last_rounds[result_index] = self.match_round;
        if result.is_some() {
            row.set(step, result);
        }
        Ok(true)
    }

    /// The result that a pair of series belongs to; two pairs may belong to one.
    fn find_or_add_result(&mut self, key: &Labels, pair: MatchedPair) -> Result<usize, QueryError> {
        let many_labels = pair.many_index.map_or(key, |at| &self.many_side[at].labels);
        let one_labels = pair.one_index.map_or(key, |at| &self.one_side[at].labels);
        let labels = self.result_labels(many_labels, one_labels);
        let drops = pair.many_index.is_some_and(|at| self.many_side[at].drop_name);
        let drop_name = self.operation.returns_bool || drops;
        let found = self.by_labels.get(&(labels.clone(), drop_name)).copied();
        let index = match found {
            Some(at) => at,
            None => {
                let row = Row::absent(self.steps);
                self.env.charge_bytes(row.size_bytes())?;
                self.series.push(LabeledRow { labels: labels.clone(), drop_name, row });
                self.last_rounds.push(0);
                self.by_labels.insert((labels, drop_name), self.series.len() - 1);
                self.series.len() - 1
            }
        };
        self.by_pair.insert(pair, index);
        Ok(index)
    }

    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let drops_name = self.operation.drops_name();
        let matching = &self.binary.matching;
        let is_one_to_one = self.binary.cardinality == MatchCardinality::OneToOne;
        let kept_labels = many.iter().filter(|(name, _)| {
            let is_true = !(drops_name && is_metadata(name));
            is_true && (!is_one_to_one || matching.contains(name) == matching.is_inclusive)
        });
        let kept = Labels::from_sorted(kept_labels);
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
