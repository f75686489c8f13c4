//! Sums, means, extremes, counts and variances, folded row after row.

use std::collections::HashMap;

use super::super::annotations::{self, Notes};
use super::super::error::QueryError;
use super::super::eval::{Consumer, Env, Incoming};
use super::super::histogram::{FloatHistogram, SaidOfResets};
use super::super::kahan::{self, Mean};
use super::super::row::{Grid, Point, Row, Series};
use super::super::syntax::{Aggregate, Aggregator, Grouping, Position};
use super::group_of;
use crate::model::Labels;

/// What a group has come to at one step.
#[derive(Clone, Copy, Default)]
struct Cell {
    /// Sum, mean, extreme, or sum of squared differences.
    value: f64,
    /// What rounding took from it; of a variance, the mean.
    rest: f64,
    count: f64,
    floats: bool,
    histograms: bool,
    /// Histograms of two kinds met.
    failed: bool,
    /// The sum would have been infinite, so that `value` is a mean.
    is_mean: bool,
    said: SaidOfResets,
}

struct Group {
    labels: Labels,
    drop_name: bool,
    cells: Vec<Cell>,
    /// Sums of histograms; empty as long as there are none.
    sums: Vec<Option<Box<FloatHistogram>>>,
}

/// Groups under way.
struct Groups<'a> {
    aggregator: Aggregator,
    grouping: &'a Grouping,
    position: Position,
    steps: usize,
    by_labels: HashMap<Labels, usize>,
    groups: Vec<Group>,
}

pub(super) fn folded(
    env: &Env<'_>,
    aggregate: &Aggregate,
    grid: Grid,
) -> Result<Vec<Series>, QueryError> {
    let new = || Groups {
        aggregator: aggregate.aggregator,
        grouping: &aggregate.grouping,
        position: aggregate.inner.position,
        steps: grid.count,
        by_labels: HashMap::new(),
        groups: Vec::new(),
    };
    let mut notes = Notes::default();
    let mut parts = env.stream(&aggregate.inner, grid, new)?.into_iter();
    let Some(mut all) = parts.next() else {
        return Ok(Vec::new());
    };
    for part in parts {
        all.merge(part, &mut notes);
    }
    let series = all.finish(&mut notes);
    env.note(notes);
    Ok(series)
}

impl Consumer for Groups<'_> {
    fn take(&mut self, env: &Env<'_>, incoming: Incoming<'_>) -> Result<(), QueryError> {
        let at = self.group(env, incoming.labels)?;
        let (aggregator, position) = (self.aggregator, self.position);
        let group = &mut self.groups[at];
        group.drop_name |= incoming.drop_name;
        let row = &*incoming.row;
        if row.histograms.is_empty() {
            for (cell, value) in group.cells.iter_mut().zip(&row.values) {
                if !crate::model::is_stale(*value) {
                    cell.take(aggregator, *value);
                }
            }
            return Ok(());
        }
        for step in 0..self.steps {
            match row.get(step) {
                Some(Point::Float(value)) => group.cells[step].take(aggregator, value),
                Some(Point::Histogram(histogram)) => {
                    group.histogram(
                        aggregator,
                        step,
                        &histogram,
                        incoming.labels.metric(),
                        position,
                        incoming.notes,
                    );
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Groups<'_> {
    fn group(&mut self, env: &Env<'_>, labels: &Labels) -> Result<usize, QueryError> {
        let key = group_of(labels, self.grouping);
        if let Some(at) = self.by_labels.get(&key) {
            return Ok(*at);
        }
        env.charge_bytes((self.steps * size_of::<Cell>()) as u64)?;
        let at = self.groups.len();
        self.by_labels.insert(key.clone(), at);
        self.groups.push(Group {
            labels: key,
            drop_name: false,
            cells: vec![Cell::default(); self.steps],
            sums: Vec::new(),
        });
        Ok(at)
    }

    /// Takes over what another thread has folded.
    fn merge(&mut self, other: Self, notes: &mut Notes) {
        for group in other.groups {
            let Some(at) = self.by_labels.get(&group.labels).copied() else {
                self.by_labels
                    .insert(group.labels.clone(), self.groups.len());
                self.groups.push(group);
                continue;
            };
            let mine = &mut self.groups[at];
            mine.drop_name |= group.drop_name;
            for (cell, other) in mine.cells.iter_mut().zip(&group.cells) {
                cell.merge(self.aggregator, other);
            }
            for (step, sum) in group.sums.into_iter().enumerate() {
                if let Some(sum) = sum {
                    mine.add(step, &sum, "", self.position, notes);
                }
            }
        }
    }

    fn finish(self, notes: &mut Notes) -> Vec<Series> {
        let (aggregator, position) = (self.aggregator, self.position);
        let series = self.groups.into_iter().map(|mut group| {
            let mut row = Row::absent(group.cells.len());
            for step in 0..group.cells.len() {
                let point = group.finish(aggregator, step, position, notes);
                row.set(step, point);
            }
            Series {
                labels: group.labels,
                drop_name: group.drop_name,
                row,
            }
        });
        series.filter(|series| !series.row.is_empty()).collect()
    }
}

impl Cell {
    fn take(&mut self, aggregator: Aggregator, value: f64) {
        let is_first = !self.floats;
        self.floats = true;
        self.count += 1.0;
        match aggregator {
            Aggregator::Sum if is_first => self.value = value,
            Aggregator::Sum => kahan::add(value, &mut self.value, &mut self.rest),
            Aggregator::Avg => self.average(value, is_first),
            Aggregator::Min if is_first || value < self.value || self.value.is_nan() => {
                self.value = value
            }
            Aggregator::Max if is_first || value > self.value || self.value.is_nan() => {
                self.value = value
            }
            Aggregator::Stddev | Aggregator::Stdvar => {
                if is_first {
                    self.rest = value;
                    self.value = if value.is_finite() { 0.0 } else { f64::NAN };
                } else {
                    let delta = value - self.rest;
                    self.rest += delta / self.count;
                    self.value += delta * (value - self.rest);
                }
            }
            _ => {}
        }
    }

    fn average(&mut self, value: f64, is_first: bool) {
        if is_first {
            self.value = value;
            return;
        }
        if !self.is_mean {
            let (mut sum, mut rest) = (self.value, self.rest);
            kahan::add(value, &mut sum, &mut rest);
            if !sum.is_infinite() {
                (self.value, self.rest) = (sum, rest);
                return;
            }
        }
        let mut mean = self.as_mean(self.count - 1.0);
        mean.add(value);
        (self.value, self.rest, self.is_mean) = (mean.mean, mean.compensation, true);
    }

    fn as_mean(&self, count: f64) -> Mean {
        match self.is_mean {
            true => Mean {
                mean: self.value,
                compensation: self.rest,
                count,
            },
            false => Mean::after(self.value, self.rest, count),
        }
    }

    fn merge(&mut self, aggregator: Aggregator, other: &Self) {
        self.histograms |= other.histograms;
        self.failed |= other.failed;
        self.said.merge(other.said);
        if !other.floats {
            self.count += other.count;
            return;
        }
        if !self.floats {
            let count = self.count;
            let (histograms, failed, said) = (self.histograms, self.failed, self.said);
            *self = Self {
                histograms,
                failed,
                said,
                count: count + other.count,
                ..*other
            };
            return;
        }
        let all = self.count + other.count;
        match aggregator {
            Aggregator::Sum => {
                kahan::add(other.value, &mut self.value, &mut self.rest);
                kahan::add(other.rest, &mut self.value, &mut self.rest);
            }
            Aggregator::Avg => {
                let sum = self.value + other.value;
                if self.is_mean || other.is_mean || sum.is_infinite() {
                    let (mine, theirs) = (self.as_mean(self.count), other.as_mean(other.count));
                    self.value = mine.mean * (self.count / all) + theirs.mean * (other.count / all);
                    self.rest = mine.compensation * (self.count / all)
                        + theirs.compensation * (other.count / all);
                    self.is_mean = true;
                } else {
                    kahan::add(other.value, &mut self.value, &mut self.rest);
                    self.rest += other.rest;
                }
            }
            Aggregator::Min if other.value < self.value || self.value.is_nan() => {
                self.value = other.value
            }
            Aggregator::Max if other.value > self.value || self.value.is_nan() => {
                self.value = other.value
            }
            Aggregator::Stddev | Aggregator::Stdvar => {
                let delta = other.rest - self.rest;
                self.value += other.value + delta * delta * self.count * other.count / all;
                self.rest += delta * other.count / all;
            }
            _ => {}
        }
        self.count = all;
    }

    fn finish(&self, aggregator: Aggregator) -> f64 {
        match aggregator {
            Aggregator::Sum => self.value + self.rest,
            Aggregator::Avg => self.as_mean(self.count).value(),
            Aggregator::Count => self.count,
            Aggregator::Group => 1.0,
            Aggregator::Stdvar => self.value / self.count,
            Aggregator::Stddev => (self.value / self.count).sqrt(),
            _ => self.value,
        }
    }
}

impl Group {
    fn histogram(
        &mut self,
        aggregator: Aggregator,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        position: Position,
        notes: &mut Notes,
    ) {
        let cell = &mut self.cells[step];
        match aggregator {
            Aggregator::Count | Aggregator::Group => {
                cell.floats = true;
                cell.count += 1.0;
            }
            Aggregator::Sum | Aggregator::Avg => {
                cell.histograms = true;
                cell.count += 1.0;
                cell.said.take(histogram.counter_reset);
                self.add(step, histogram, metric, position, notes);
            }
            _ => {
                let text = annotations::histogram_ignored_in_aggregation(aggregator.name());
                notes.info(position, text);
            }
        }
    }

    fn add(
        &mut self,
        step: usize,
        histogram: &FloatHistogram,
        metric: &str,
        position: Position,
        notes: &mut Notes,
    ) {
        self.sums.resize(self.cells.len(), None);
        let Some(sum) = &mut self.sums[step] else {
            self.sums[step] = Some(Box::new(histogram.clone()));
            return;
        };
        match sum.add(histogram) {
            Ok(reconciled) => {
                if reconciled.bounds {
                    notes.info(position, annotations::bounds_reconciled("aggregation"));
                }
            }
            Err(_) => {
                self.cells[step].failed = true;
                notes.warn(position, annotations::mixed_schemas(metric));
            }
        }
    }

    fn finish(
        &mut self,
        aggregator: Aggregator,
        step: usize,
        position: Position,
        notes: &mut Notes,
    ) -> Option<Point> {
        let cell = self.cells[step];
        if cell.floats && cell.histograms {
            notes.warn(position, annotations::mixed_in_aggregation());
            return None;
        }
        if cell.floats {
            return Some(Point::Float(cell.finish(aggregator)));
        }
        if cell.failed {
            return None;
        }
        let mut sum = self.sums.get_mut(step)?.take()?;
        if cell.said.contradict() {
            notes.warn(position, annotations::reset_collision("aggregation"));
        }
        if aggregator == Aggregator::Avg {
            sum.divide(cell.count);
        }
        Some(Point::Histogram((*sum).into()))
    }
}
