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
const IDENTITY_LABELS: [&str; 2] = ["instance", "job"];

fn identity_labels(labels: &Labels) -> Labels {
    Labels::new(IDENTITY_LABELS.map(|name| (name, labels.get(name))))
}

/// Which descriptions are meant, and which of their labels.
fn info_matchers(call: &Call) -> Result<Vec<LabelMatcher>, QueryError> {
    let mut matchers: Vec<LabelMatcher> =
        match call.arguments.get(1).map(|node| &node.without_parens().kind) {
            Some(ExprKind::Selector(selector)) => selector.matchers.clone(),
            Some(_) => {
                return Err(QueryError::execution(
                    "info wants label matchers as its second argument",
                ));
            }
            None => Vec::new(),
        };
    let selects_names = |matcher: &LabelMatcher| {
        let op = matcher.matcher().op;
        is_name(matcher) && matches!(op, MatchOp::Equal | MatchOp::Matches)
    };
    if !matchers.iter().any(selects_names) {
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
        let base = self.eval_vector(&call.arguments[0], grid)?;
        let matchers = info_matchers(call)?;
        let selector = Selector {
            matchers,
            position: Position::default(),
            time_modifiers: self.reference_time(&call.arguments[0]),
            name: None,
            range_modifier: RangeModifier::None,
            detects_resets: false,
        };
        let info_rows = self.collect_infos(&selector, grid)?;
        let mut by_identity: HashMap<Labels, Vec<&LabeledRow>> = HashMap::new();
        for info in &info_rows {
            by_identity.entry(identity_labels(&info.labels)).or_default().push(info);
        }
        let (names, data): (Vec<_>, Vec<_>) =
            selector.matchers.iter().partition(|matcher| is_name(matcher));
        let mut join = InfoJoin { env: self, data, by_labels: HashMap::new(), series: Vec::new() };
        for series_row in &base {
            self.check_stop()?;
            let is_info = names.iter().all(|matcher| matcher.matches(series_row.labels.metric()));
            let empty = Vec::new();
            let identity = identity_labels(&series_row.labels);
            let infos = if is_info || identity.is_empty() {
                &empty
            } else {
                by_identity.get(&identity).unwrap_or(&empty)
            };
            for step in (0..grid.count).filter(|step| series_row.row.has_sample(*step)) {
                let labels = if is_info {
                    Some(series_row.labels.clone())
                } else {
                    join.enriched_labels(&series_row.labels, infos, step)?
                };
                if let Some(labels) = labels {
                    join.add_sample(labels, series_row, step)?;
                }
            }
        }
        Ok(join.series)
    }

    /// Which time the descriptions are looked for at: that of the series they are for, where these
    /// are all of one.
    fn reference_time(&self, node: &ExprNode) -> TimeModifiers {
        let mut references = References::default();
        references.collect(node, &mut Vec::new());
        let References { modifiers, has_other_time } = references;
        let Some((first, others)) = modifiers.split_first() else {
            return TimeModifiers::default();
        };
        let is_same = |other: &TimeModifiers| match (first.at, other.at) {
            (None, None) => first.offset.ms == other.offset.ms,
            (Some(_), Some(_)) => self.target_time(first, 0) == self.target_time(other, 0),
            _ => false,
        };
        if !has_other_time && others.iter().all(is_same) {
            first.clone()
        } else {
            TimeModifiers::default()
        }
    }

    /// The descriptions. Their times are wanted, not their values: of several the newest is true.
    fn collect_infos(
        &self,
        selector: &Selector,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let collect = |selection| {
            let parts =
                self.stream_selector(selector, grid, selection, &SeriesCollector::default)?;
            let series = parts.into_iter().flat_map(|part| part.series);
            Ok::<Vec<LabeledRow>, QueryError>(series.collect())
        };
        let is_histogram = |one: &LabeledRow| one.row.histograms.iter().any(Option::is_some);
        if collect(SampleSelection::Value)?.iter().any(is_histogram) {
            Err(QueryError::execution("info sample should be float"))
        } else {
            collect(SampleSelection::Time)
        }
    }
}

/// The times that an expression's series are of.
#[derive(Default)]
struct References {
    /// Of each selector, with what the subqueries around it add.
    modifiers: Vec<TimeModifiers>,
    /// Something has no selector: it is of the step's own time.
    has_other_time: bool,
}

impl References {
    /// Looks through what yields series; false when there is no selector in it.
    fn collect<'a>(
        &mut self,
        node: &'a ExprNode,
        outer_modifiers: &mut Vec<&'a TimeModifiers>,
    ) -> bool {
        if !matches!(node.value_type(), ValueType::Vector | ValueType::Matrix) {
            return false;
        }
        let is_found = match &node.kind {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => {
                self.modifiers.push(combine_modifiers(&selector.time_modifiers, outer_modifiers));
                true
            }
            ExprKind::Subquery(subquery) => {
                outer_modifiers.push(&subquery.time_modifiers);
                let is_found = self.collect(&subquery.inner, outer_modifiers);
                outer_modifiers.pop();
                is_found
            }
            ExprKind::Paren(inner) | ExprKind::Sign(inner, _) => {
                self.collect(inner, outer_modifiers)
            }
            ExprKind::Aggregate(aggregate) => self.collect(&aggregate.inner, outer_modifiers),
            ExprKind::Binary(binary) => {
                let left = self.collect(&binary.left, outer_modifiers);
                self.collect(&binary.right, outer_modifiers) || left
            }
            // Its second argument says which labels are wanted: it yields no series.
            ExprKind::Call(call) if call.name() == "info" => {
                self.collect(&call.arguments[0], outer_modifiers)
            }
            ExprKind::Call(call) => {
                let mut is_found = false;
                for argument in &call.arguments {
                    is_found |= self.collect(argument, outer_modifiers);
                }
                is_found
            }
            ExprKind::Number(..) | ExprKind::Text(_) => false,
        };
        self.has_other_time |= !is_found;
        is_found
    }
}

/// The time that a selector looks at within subqueries: their offsets add up until a time is named.
fn combine_modifiers(own: &TimeModifiers, outer_modifiers: &[&TimeModifiers]) -> TimeModifiers {
    let mut modifiers = own.clone();
    for outer in outer_modifiers.iter().rev() {
        if modifiers.at.is_some() {
            break;
        }
        modifiers.offset.ms = modifiers.offset.ms.saturating_add(outer.offset.ms);
        modifiers.at = outer.at;
    }
    modifiers
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
    fn enriched_labels(
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
            let newest_row = newest.entry(info.labels.metric()).or_insert((time, info));
            if time == newest_row.0 && newest_row.1.labels != info.labels {
                let (old, new) = (&newest_row.1.labels, &info.labels);
                return Err(QueryError::execution(format!(
                    "found duplicate series for info metric: existing {old} @ {time}, new {new} @ {time}"
                )));
            }
            if time > newest_row.0 {
                *newest_row = (time, info);
            }
        }
        for (_, info) in newest.values() {
            for (name, value) in info.labels.iter() {
                let is_wanted = self.data.is_empty()
                    || self.data.iter().any(|matcher| *matcher.matcher().name == *name);
                let is_own = name == METRIC_NAME || !base.get(name).is_empty();
                if !is_wanted || is_own {
                    continue;
                }
                if added.insert(name, value).is_some_and(|other| other != value) {
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

    fn add_sample(
        &mut self,
        labels: Labels,
        base: &LabeledRow,
        step: usize,
    ) -> Result<(), QueryError> {
        let key = (labels, base.drop_name);
        let index = match self.by_labels.get(&key) {
            Some(at) => *at,
            None => {
                let row = Row::absent(base.row.values.len());
                self.env.charge_bytes(row.size_bytes())?;
                self.series.push(LabeledRow { labels: key.0.clone(), drop_name: key.1, row });
                self.by_labels.insert(key, self.series.len() - 1);
                self.series.len() - 1
            }
        };
        self.series[index].row.set(step, base.row.get(step));
        Ok(())
    }
}
