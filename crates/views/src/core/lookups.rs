//! Finds the tables that a refresh scans as a whole for lack of an index.
//!
//! Changes of one source are joined with the rows of the others, which are reached one after the
//! other. Where a column of a table must equal a value that is known already, an index that begins
//! with the column finds its rows. Without one the whole table is scanned, however little changed.
//!
//! Rows are looked up again where their number matters: on the matched side of an outer, semi or
//! anti join, for each row of the other side that matches something; and in all that a stage reads,
//! where its groups are recomputed. Where a column is compared with the clock, rows are looked up
//! by it as time passes.

use std::collections::{BTreeMap, BTreeSet};

use super::analyse::{Side, equalities};
use super::expression::{ColumnId, Expression};
use super::tree::{JoinKind, Node, Source};

/// The input of a stage, and the keys by which its groups are recomputed.
#[derive(Clone, Debug)]
pub struct StageInput<'a> {
    /// The operator whose rows the stage stores.
    pub input: &'a Node,
    /// Keys of groups that are recomputed, without nullable ones: nulls are not looked up by an
    /// index.
    pub asked: Vec<&'a Expression>,
}

/// Facts about a table that decide whether an index helps.
#[derive(Clone, Debug, Default)]
pub struct TableFacts {
    /// Whether it is small enough to be scanned each time.
    pub is_small: bool,
    /// Columns with which a usable index begins.
    pub indexed: BTreeSet<String>,
    /// Columns with an index that finds them by their text.
    pub texts: BTreeSet<String>,
}

/// An index that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingIndex {
    /// The table, by its index in the view's list.
    pub table: usize,
    /// The columns that the index needs.
    pub columns: Vec<String>,
    /// It is used when one of these tables changes, …
    pub changed: BTreeSet<usize>,
    /// … when groups are recomputed, …
    pub is_asked: bool,
    /// … and whenever time passes.
    pub has_clock: bool,
}

/// The missing indexes of stages over tables. Tables without an entry in `tables` are left out.
pub fn missing(
    stages: &[StageInput<'_>],
    tables: &BTreeMap<usize, TableFacts>,
) -> Vec<MissingIndex> {
    let mut search = Search {
        tables,
        found: Vec::new(),
    };
    // The tables below each stage, by its index.
    let mut below: Vec<BTreeSet<usize>> = Vec::new();
    for stage in stages {
        let mut shape = JoinGraph::default();
        let all = shape.add(stage.input);
        let tables_of = |leaf: usize| match &shape.leaves[leaf] {
            // It changes together with all the others.
            Source::Itself => tables_below(&shape.leaves, &below),
            other => tables_below(std::slice::from_ref(other), &below),
        };
        for leaf in all.clone() {
            let why = LookupReason::Changed(tables_of(leaf));
            let wanted = shape.joined_with(leaf, &all);
            search.reach(&shape, BTreeSet::from([leaf]), wanted, &[], &why);
            let matched = shape.matched.iter();
            for (rows, counted) in matched.filter(|(_, counted)| counted.contains(&leaf)) {
                search.reach(&shape, rows.clone(), counted.clone(), &[], &why);
            }
        }
        for (leaf, column) in shape.moments() {
            search.pass(shape.leaves[leaf], column);
            let wanted = shape.joined_with(leaf, &all);
            search.reach(
                &shape,
                BTreeSet::from([leaf]),
                wanted,
                &[],
                &LookupReason::Passed,
            );
        }
        if !stage.asked.is_empty() {
            let keys: Vec<ColumnId> = stage
                .asked
                .iter()
                .filter_map(|key| key.as_column())
                .collect();
            search.reach(
                &shape,
                BTreeSet::new(),
                all.clone(),
                &keys,
                &LookupReason::Asked,
            );
        }
        below.push(all.into_iter().flat_map(tables_of).collect());
    }
    search.found
}

/// The tables of sources, those below stages included.
fn tables_below(sources: &[Source], below: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let of = |source: &Source| match *source {
        Source::Table(table) => BTreeSet::from([table]),
        Source::Stage(stage) => below[stage].clone(),
        Source::Itself => BTreeSet::new(),
    };
    sources.iter().flat_map(of).collect()
}

/// Scans of a node, by their order in it.
type ScanSet = BTreeSet<usize>;

enum LookupReason {
    Changed(BTreeSet<usize>),
    Asked,
    Passed,
}

/// Scans of a tree of operators, and the conditions that relate them.
#[derive(Default)]
struct JoinGraph {
    leaves: Vec<Source>,
    /// Scan and name of the source columns that a column copies.
    columns: BTreeMap<ColumnId, Vec<(usize, String)>>,
    equal: Vec<(Side, Side)>,
    /// Columns that are compared with the clock.
    passing: Vec<ColumnId>,
    /// Sides of outer, semi and anti joins whose rows depend on the number of matches, with the
    /// side in which matches are counted.
    matched: Vec<(ScanSet, ScanSet)>,
    /// Scans of each input of the unions: scans of different inputs are not joined.
    apart: Vec<Vec<ScanSet>>,
}

impl JoinGraph {
    fn add(&mut self, node: &Node) -> ScanSet {
        match node {
            Node::Unit => ScanSet::new(),
            Node::Scan { source, columns } => {
                let leaf = self.leaves.len();
                self.leaves.push(*source);
                for (id, name) in columns {
                    let places = self.columns.entry(*id).or_default();
                    places.push((leaf, name.clone()));
                }
                ScanSet::from([leaf])
            }
            Node::Filter { input, condition } => {
                self.equal.extend(equalities(condition));
                self.add(input)
            }
            Node::Recent { input, moments, .. } => {
                let columns = moments.iter().map(|moment| moment.value.as_column());
                self.passing.extend(columns.flatten());
                self.add(input)
            }
            Node::Project { input, columns } => {
                let all = self.add(input);
                for (id, expression) in columns {
                    self.rename(*id, expression.as_column());
                }
                all
            }
            Node::Expand { input, .. } => self.add(input),
            Node::Join {
                kind,
                left,
                right,
                condition,
            } => {
                self.equal.extend(equalities(condition));
                let (left, right) = (self.add(left), self.add(right));
                if *kind != JoinKind::Inner {
                    self.matched.push((left.clone(), right.clone()));
                }
                if *kind == JoinKind::Full {
                    self.matched.push((right.clone(), left.clone()));
                }
                left.into_iter().chain(right).collect()
            }
            Node::UnionAll { inputs, columns } => {
                let mut apart = Vec::new();
                for (input, mapped) in inputs {
                    apart.push(self.add(input));
                    for (id, from) in columns.iter().zip(mapped) {
                        self.rename(*id, Some(*from));
                    }
                }
                let all = apart.iter().flatten().copied().collect();
                self.apart.push(apart);
                all
            }
        }
    }

    fn rename(&mut self, id: ColumnId, from: Option<ColumnId>) {
        let places = from.and_then(|from| self.columns.get(&from)).cloned();
        let known = self.columns.entry(id).or_default();
        known.extend(places.unwrap_or_default());
    }

    /// Source columns that are compared with the clock.
    fn moments(&self) -> impl Iterator<Item = (usize, &str)> {
        let places = self
            .passing
            .iter()
            .filter_map(|id| self.columns.get(id))
            .flatten();
        places.map(|(leaf, name)| (*leaf, name.as_str()))
    }

    /// The leaves among these that rows of one are joined with.
    fn joined_with(&self, leaf: usize, all: &ScanSet) -> ScanSet {
        let unions = self.apart.iter();
        let around = unions.filter(|inputs| inputs.iter().any(|input| input.contains(&leaf)));
        let others: ScanSet = around
            .flatten()
            .filter(|input| !input.contains(&leaf))
            .flatten()
            .copied()
            .collect();
        all.difference(&others).copied().collect()
    }

    /// Whether the value of a side can be computed from the rows of these scans.
    fn is_known(&self, side: &Side, reached: &ScanSet) -> bool {
        let is_known = |id: &ColumnId| {
            let mut places = self.columns.get(id).into_iter().flatten();
            places.any(|(leaf, _)| reached.contains(leaf))
        };
        !side.columns.is_empty() && side.columns.iter().all(is_known)
    }

    /// The name of the column that one side is in a leaf, and whether it is cast.
    fn column_in(&self, leaf: usize, side: &Side) -> Option<(&str, bool)> {
        let mut places = self.columns.get(&side.column?)?.iter();
        let found = places.find(|(place, _)| *place == leaf);
        found.map(|(_, name)| (name.as_str(), side.is_text))
    }
}

struct Search<'a> {
    tables: &'a BTreeMap<usize, TableFacts>,
    found: Vec<MissingIndex>,
}

impl Search<'_> {
    /// Looks up the wanted scans one after the other, from the reached ones and from values of the
    /// `given` columns. Adds an index for each lookup that has none.
    fn reach(
        &mut self,
        shape: &JoinGraph,
        mut reached: ScanSet,
        wanted: ScanSet,
        given: &[ColumnId],
        why: &LookupReason,
    ) {
        let mut left: ScanSet = wanted.difference(&reached).copied().collect();
        while !left.is_empty() {
            let compared: Vec<(usize, Vec<String>)> = left
                .iter()
                .map(|leaf| (*leaf, self.compared(shape, *leaf, &reached, given)))
                .collect();
            let mut by_column = compared.iter().filter(|(_, columns)| !columns.is_empty());
            let looked_up = by_column
                .clone()
                .find(|(leaf, columns)| self.is_found(shape.leaves[*leaf], columns, why));
            let next = match (looked_up, by_column.next()) {
                (Some((leaf, _)), _) => *leaf,
                (None, Some((leaf, columns))) => {
                    self.miss(shape.leaves[*leaf], columns, why);
                    *leaf
                }
                // No index would help.
                (None, None) => compared[0].0,
            };
            reached.insert(next);
            left.remove(&next);
        }
    }

    /// Looks rows of a source up as time passes.
    fn pass(&mut self, source: Source, column: &str) {
        let columns = [column.to_owned()];
        if !self.is_found(source, &columns, &LookupReason::Passed) {
            self.miss(source, &columns, &LookupReason::Passed);
        }
    }

    /// The columns of a leaf by which it can be looked up from those that are reached.
    fn compared(
        &self,
        shape: &JoinGraph,
        leaf: usize,
        reached: &ScanSet,
        given: &[ColumnId],
    ) -> Vec<String> {
        let source = shape.leaves[leaf];
        let sides = shape
            .equal
            .iter()
            .flat_map(|(one, other)| [(one, other), (other, one)]);
        let by_sides = sides
            .filter(|(_, other)| shape.is_known(other, reached))
            .filter_map(|(one, _)| shape.column_in(leaf, one))
            .filter(|(name, is_text)| !is_text || self.is_text(source, name))
            .map(|(name, _)| name);
        let places = given
            .iter()
            .filter_map(|id| shape.columns.get(id))
            .flatten();
        let by_keys = places
            .filter(|(place, _)| *place == leaf)
            .map(|(_, name)| name.as_str());
        let mut columns: Vec<String> = Vec::new();
        for name in by_sides.chain(by_keys) {
            if !columns.iter().any(|known| known == name) {
                columns.push(name.to_owned());
            }
        }
        columns
    }

    fn facts(&self, source: Source) -> Option<(usize, &TableFacts)> {
        match source {
            Source::Table(table) => Some((table, self.tables.get(&table)?)),
            Source::Stage(_) | Source::Itself => None,
        }
    }

    fn is_text(&self, source: Source, column: &str) -> bool {
        let facts = self.facts(source);
        facts.is_none_or(|(_, facts)| facts.texts.contains(column))
    }

    /// Whether rows of a source are found by one of these columns at little cost, with the indexes
    /// that are missing.
    fn is_found(&mut self, source: Source, columns: &[String], why: &LookupReason) -> bool {
        let Some((table, facts)) = self.facts(source) else {
            return true;
        };
        if facts.is_small || columns.iter().any(|name| facts.indexed.contains(name)) {
            return true;
        }
        let mut found = self.found.iter_mut();
        let known = found.find(|one| one.table == table && columns.contains(&one.columns[0]));
        known.map(|one| one.add(why)).is_some()
    }

    fn miss(&mut self, source: Source, columns: &[String], why: &LookupReason) {
        if let Source::Table(table) = source {
            let mut one = MissingIndex {
                table,
                columns: columns.to_vec(),
                changed: BTreeSet::new(),
                is_asked: false,
                has_clock: false,
            };
            one.add(why);
            self.found.push(one);
        }
    }
}

impl MissingIndex {
    fn add(&mut self, why: &LookupReason) {
        match why {
            LookupReason::Changed(tables) => self.changed.extend(tables),
            LookupReason::Asked => self.is_asked = true,
            LookupReason::Passed => self.has_clock = true,
        }
    }
}

#[cfg(test)]
mod tests;
