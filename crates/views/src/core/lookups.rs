//! Which tables a refresh reads as a whole for want of an index.
//!
//! What changed in one source is joined with the rows of the others, which are reached from there one after the other. Where a column of a
//! table has to be equal to something that is there already, an index that begins with such a column finds its rows. Without one the table
//! is read from its first row to its last, however little changed.
//!
//! Rows are looked up once more where it matters how many there are: on the side of an outer, semi or anti join that is matched,
//! for each row of the other side that something on this side matches; and in all that a stage reads where its groups are asked
//! again. And where a column is compared with the clock, rows are looked up by it as time passes.

use std::collections::{BTreeMap, BTreeSet};

use super::analyse::{Side, equalities};
use super::expression::{ColumnId, Expression};
use super::tree::{JoinKind, Node, Source};

/// What a stage reads, and what of it is asked again.
#[derive(Clone, Debug)]
pub struct Reads<'a> {
    /// Where its rows come from.
    pub input: &'a Node,
    /// The keys of groups that are asked again, in which nothing is null: by null nothing is looked up.
    pub asked: Vec<&'a Expression>,
}

/// What matters of a table.
#[derive(Clone, Debug, Default)]
pub struct TableFacts {
    /// Whether it is small enough to be read as a whole each time.
    pub is_small: bool,
    /// The columns with which a usable index begins.
    pub indexed: BTreeSet<String>,
    /// The columns whose text is found by their own indexes.
    pub texts: BTreeSet<String>,
}

/// An index that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// On which table, by its place.
    pub table: usize,
    /// Of which columns.
    pub columns: Vec<String>,
    /// It is looked up when these change, …
    pub changed: BTreeSet<usize>,
    /// … when groups are asked again, …
    pub is_asked: bool,
    /// … and whenever time passes.
    pub has_clock: bool,
}

/// The indexes that are missing for stages over tables, by their places. Nothing is said of a table of which nothing is known.
pub fn missing(stages: &[Reads<'_>], tables: &BTreeMap<usize, TableFacts>) -> Vec<Missing> {
    let mut search = Search {
        tables,
        found: Vec::new(),
    };
    // The tables below each stage, by its place.
    let mut below: Vec<BTreeSet<usize>> = Vec::new();
    for stage in stages {
        let mut shape = Shape::default();
        let all = shape.add(stage.input);
        let tables_of = |leaf: usize| match &shape.leaves[leaf] {
            // It changes with all others.
            Source::Itself => tables_below(&shape.leaves, &below),
            other => tables_below(std::slice::from_ref(other), &below),
        };
        for leaf in all.clone() {
            let why = Why::Changed(tables_of(leaf));
            let wanted = shape.joined_with(leaf, &all);
            search.reach(&shape, (BTreeSet::from([leaf]), wanted), &[], &why);
            let matched = shape.matched.iter();
            for (rows, counted) in matched.filter(|(_, counted)| counted.contains(&leaf)) {
                search.reach(&shape, (rows.clone(), counted.clone()), &[], &why);
            }
        }
        for (leaf, column) in shape.moments() {
            search.pass(shape.leaves[leaf], column);
            let wanted = shape.joined_with(leaf, &all);
            search.reach(&shape, (BTreeSet::from([leaf]), wanted), &[], &Why::Passed);
        }
        if !stage.asked.is_empty() {
            let keys: Vec<ColumnId> = stage
                .asked
                .iter()
                .filter_map(|key| key.as_column())
                .collect();
            search.reach(&shape, (BTreeSet::new(), all.clone()), &keys, &Why::Asked);
        }
        below.push(all.into_iter().flat_map(tables_of).collect());
    }
    search.found
}

/// The tables of sources, and those below stages.
fn tables_below(sources: &[Source], below: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let of = |source: &Source| match *source {
        Source::Table(table) => BTreeSet::from([table]),
        Source::Stage(stage) => below[stage].clone(),
        Source::Itself => BTreeSet::new(),
    };
    sources.iter().flat_map(of).collect()
}

/// The places of the scans of a node, in the order in which they stand.
type Leaves = BTreeSet<usize>;

enum Why {
    Changed(BTreeSet<usize>),
    Asked,
    Passed,
}

/// A tree of operators, as far as it matters here.
#[derive(Default)]
struct Shape {
    leaves: Vec<Source>,
    /// The columns of leaves that a column is.
    columns: BTreeMap<ColumnId, Vec<(usize, String)>>,
    equal: Vec<(Side, Side)>,
    /// The columns that are compared with the clock.
    passing: Vec<ColumnId>,
    /// The sides of joins for whose rows it is counted what they match, with the side that is counted.
    matched: Vec<(Leaves, Leaves)>,
    /// The inputs of unions: what is in one of them is joined with none of the others.
    apart: Vec<Vec<Leaves>>,
}

impl Shape {
    fn add(&mut self, node: &Node) -> Leaves {
        match node {
            Node::Unit => Leaves::new(),
            Node::Scan { source, columns } => {
                let leaf = self.leaves.len();
                self.leaves.push(*source);
                for (id, name) in columns {
                    let places = self.columns.entry(*id).or_default();
                    places.push((leaf, name.clone()));
                }
                Leaves::from([leaf])
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

    /// What is compared with the clock, as columns of leaves.
    fn moments(&self) -> impl Iterator<Item = (usize, &str)> {
        let places = self.passing.iter().filter_map(|id| self.columns.get(id));
        let places = places.flatten();
        places.map(|(leaf, name)| (*leaf, name.as_str()))
    }

    /// The leaves among these that rows of one are joined with.
    fn joined_with(&self, leaf: usize, all: &Leaves) -> Leaves {
        let unions = self.apart.iter();
        let around = unions.filter(|inputs| inputs.iter().any(|input| input.contains(&leaf)));
        let others = around.flatten().filter(|input| !input.contains(&leaf));
        let others: Leaves = others.flatten().copied().collect();
        all.difference(&others).copied().collect()
    }

    /// Whether what is compared is known once these leaves are reached.
    fn is_known(&self, side: &Side, reached: &Leaves) -> bool {
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
    found: Vec<Missing>,
}

impl Search<'_> {
    /// Reaches the leaves that are wanted from those that are there. `given` are columns of which values are there as well.
    fn reach(
        &mut self,
        shape: &Shape,
        (mut reached, wanted): (Leaves, Leaves),
        given: &[ColumnId],
        why: &Why,
    ) {
        let mut left: Leaves = wanted.difference(&reached).copied().collect();
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
        if !self.is_found(source, &columns, &Why::Passed) {
            self.miss(source, &columns, &Why::Passed);
        }
    }

    /// The columns of a leaf by which it can be looked up from those that are reached.
    fn compared(
        &self,
        shape: &Shape,
        leaf: usize,
        reached: &Leaves,
        given: &[ColumnId],
    ) -> Vec<String> {
        let source = shape.leaves[leaf];
        let sides = shape.equal.iter();
        let sides = sides.flat_map(|(one, other)| [(one, other), (other, one)]);
        let by_sides = sides
            .filter(|(_, other)| shape.is_known(other, reached))
            .filter_map(|(one, _)| shape.column_in(leaf, one))
            .filter(|(name, is_text)| !is_text || self.is_text(source, name))
            .map(|(name, _)| name);
        let places = given
            .iter()
            .filter_map(|id| shape.columns.get(id))
            .flatten();
        let by_keys = places.filter(|(place, _)| *place == leaf);
        let by_keys = by_keys.map(|(_, name)| name.as_str());
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

    /// Whether rows of a source are found by one of these columns at little cost, with the indexes that are missing.
    fn is_found(&mut self, source: Source, columns: &[String], why: &Why) -> bool {
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

    fn miss(&mut self, source: Source, columns: &[String], why: &Why) {
        if let Source::Table(table) = source {
            let mut one = Missing {
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

impl Missing {
    fn add(&mut self, why: &Why) {
        match why {
            Why::Changed(tables) => self.changed.extend(tables),
            Why::Asked => self.is_asked = true,
            Why::Passed => self.has_clock = true,
        }
    }
}

#[cfg(test)]
mod tests;
