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
pub(crate) struct StageInput<'a> {
    /// The operator whose rows the stage stores.
    pub input: &'a Node,
    /// Keys of groups that are recomputed, without nullable ones: nulls are not looked up by an
    /// index.
    pub recomputed_keys: Vec<&'a Expression>,
}

/// Facts about a table that decide whether an index helps.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableFacts {
    /// Whether it is small enough to be scanned each time.
    pub is_small: bool,
    /// Columns with which a usable index begins.
    pub indexed_columns: BTreeSet<String>,
    /// Columns with an index that finds them by their text.
    pub text_indexed_columns: BTreeSet<String>,
}

/// An index that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingIndex {
    /// The table, by its index in the view's list.
    pub table: usize,
    /// The columns that the index needs.
    pub columns: Vec<String>,
    /// It is used when one of these tables changes, …
    pub changed_tables: BTreeSet<usize>,
    /// … when groups are recomputed, …
    pub is_for_recomputation: bool,
    /// … and whenever time passes.
    pub is_for_clock: bool,
}

/// The missing indexes of stages over tables. Tables without an entry in `tables` are left out.
pub(crate) fn find_missing_indexes(
    stages: &[StageInput<'_>],
    tables: &BTreeMap<usize, TableFacts>,
) -> Vec<MissingIndex> {
    let mut search = Search { tables, missing: Vec::new() };
    // The tables below each stage, by its index.
    let mut tables_below_stages: Vec<BTreeSet<usize>> = Vec::new();
    for stage in stages {
        let mut graph = JoinGraph::default();
        let scans = graph.add_node(stage.input);
        let tables_of_scan = |leaf: usize| match &graph.scan_sources[leaf] {
            // It changes together with all the others.
            Source::Recursion => tables_below(&graph.scan_sources, &tables_below_stages),
            other => tables_below(std::slice::from_ref(other), &tables_below_stages),
        };
        for leaf in scans.clone() {
            let reason = LookupReason::Changed(tables_of_scan(leaf));
            let targets = graph.joinable_scans(leaf, &scans);
            search.reach_scans(&graph, BTreeSet::from([leaf]), targets, &[], &reason);
            let matched = graph.counted_matches.iter();
            for (rows, counted) in matched.filter(|(_, counted)| counted.contains(&leaf)) {
                search.reach_scans(&graph, rows.clone(), counted.clone(), &[], &reason);
            }
        }
        for (leaf, column) in graph.clock_origins() {
            search.check_clock_lookup(graph.scan_sources[leaf], column);
            let wanted = graph.joinable_scans(leaf, &scans);
            search.reach_scans(
                &graph,
                BTreeSet::from([leaf]),
                wanted,
                &[],
                &LookupReason::TimePassed,
            );
        }
        if !stage.recomputed_keys.is_empty() {
            let keys: Vec<ColumnId> =
                stage.recomputed_keys.iter().filter_map(|key| key.as_column()).collect();
            search.reach_scans(
                &graph,
                BTreeSet::new(),
                scans.clone(),
                &keys,
                &LookupReason::Recomputation,
            );
        }
        tables_below_stages.push(scans.into_iter().flat_map(tables_of_scan).collect());
    }
    search.missing
}

/// The tables of sources, those below stages included.
fn tables_below(sources: &[Source], below: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let source_tables = |source: &Source| match *source {
        Source::Table(table) => BTreeSet::from([table]),
        Source::Stage(stage) => below[stage].clone(),
        Source::Recursion => BTreeSet::new(),
    };
    sources.iter().flat_map(source_tables).collect()
}

/// Scans of a node, by their order in it.
type ScanSet = BTreeSet<usize>;

enum LookupReason {
    Changed(BTreeSet<usize>),
    Recomputation,
    TimePassed,
}

/// Scans of a tree of operators, and the conditions that relate them.
#[derive(Default)]
struct JoinGraph {
    scan_sources: Vec<Source>,
    /// Scan and name of the source columns that a column copies.
    columns: BTreeMap<ColumnId, Vec<(usize, String)>>,
    equalities: Vec<(Side, Side)>,
    /// Columns that are compared with the clock.
    clock_columns: Vec<ColumnId>,
    /// Sides of outer, semi and anti joins whose rows depend on the number of matches, with the
    /// side in which matches are counted.
    counted_matches: Vec<(ScanSet, ScanSet)>,
    /// Scans of each input of the unions: scans of different inputs are not joined.
    union_inputs: Vec<Vec<ScanSet>>,
}

impl JoinGraph {
    fn add_node(&mut self, node: &Node) -> ScanSet {
        match node {
            Node::Unit => ScanSet::new(),
            Node::Scan { source, columns } => {
                let leaf = self.scan_sources.len();
                self.scan_sources.push(*source);
                for (id, name) in columns {
                    let origins = self.columns.entry(*id).or_default();
                    origins.push((leaf, name.clone()));
                }
                ScanSet::from([leaf])
            }
            Node::Filter { input, condition } => {
                self.equalities.extend(equalities(condition));
                self.add_node(input)
            }
            Node::TemporalFilter { input, predicates: moments, .. } => {
                let columns = moments.iter().map(|moment| moment.value.as_column());
                self.clock_columns.extend(columns.flatten());
                self.add_node(input)
            }
            Node::Project { input, columns } => {
                let scans = self.add_node(input);
                for (id, expression) in columns {
                    self.add_origins(*id, expression.as_column());
                }
                scans
            }
            Node::FlatMap { input, .. } => self.add_node(input),
            Node::Join { kind, left, right, condition } => {
                self.equalities.extend(equalities(condition));
                let (left, right) = (self.add_node(left), self.add_node(right));
                if *kind != JoinKind::Inner {
                    self.counted_matches.push((left.clone(), right.clone()));
                }
                if *kind == JoinKind::Full {
                    self.counted_matches.push((right.clone(), left.clone()));
                }
                left.into_iter().chain(right).collect()
            }
            Node::UnionAll { inputs, columns } => {
                let mut input_scans = Vec::new();
                for (input, mapped) in inputs {
                    input_scans.push(self.add_node(input));
                    for (id, from) in columns.iter().zip(mapped) {
                        self.add_origins(*id, Some(*from));
                    }
                }
                let all = input_scans.iter().flatten().copied().collect();
                self.union_inputs.push(input_scans);
                all
            }
        }
    }

    fn add_origins(&mut self, id: ColumnId, from: Option<ColumnId>) {
        let origins = from.and_then(|from| self.columns.get(&from)).cloned();
        let existing = self.columns.entry(id).or_default();
        existing.extend(origins.unwrap_or_default());
    }

    /// Source columns that are compared with the clock.
    fn clock_origins(&self) -> impl Iterator<Item = (usize, &str)> {
        let origins = self.clock_columns.iter().filter_map(|id| self.columns.get(id)).flatten();
        origins.map(|(leaf, name)| (*leaf, name.as_str()))
    }

    /// The leaves among these that rows of one are joined with.
    fn joinable_scans(&self, leaf: usize, scans: &ScanSet) -> ScanSet {
        let unions = self.union_inputs.iter();
        let enclosing = unions.filter(|inputs| inputs.iter().any(|input| input.contains(&leaf)));
        let others: ScanSet =
            enclosing.flatten().filter(|input| !input.contains(&leaf)).flatten().copied().collect();
        scans.difference(&others).copied().collect()
    }

    /// Whether the value of a side can be computed from the rows of these scans.
    fn is_computable(&self, side: &Side, reached: &ScanSet) -> bool {
        let is_known = |id: &ColumnId| {
            let mut origins = self.columns.get(id).into_iter().flatten();
            origins.any(|(leaf, _)| reached.contains(leaf))
        };
        !side.columns.is_empty() && side.columns.iter().all(is_known)
    }

    /// The name of the column that one side is in a leaf, and whether it is cast.
    fn column_in_scan(&self, leaf: usize, side: &Side) -> Option<(&str, bool)> {
        let mut origins = self.columns.get(&side.column?)?.iter();
        let origin = origins.find(|(place, _)| *place == leaf);
        origin.map(|(_, name)| (name.as_str(), side.is_text))
    }
}

struct Search<'a> {
    tables: &'a BTreeMap<usize, TableFacts>,
    missing: Vec<MissingIndex>,
}

impl Search<'_> {
    /// Looks up the wanted scans one after the other, from the reached ones and from values of the
    /// `given` columns. Adds an index for each lookup that has none.
    fn reach_scans(
        &mut self,
        graph: &JoinGraph,
        mut reached: ScanSet,
        targets: ScanSet,
        known_columns: &[ColumnId],
        reason: &LookupReason,
    ) {
        let mut remaining: ScanSet = targets.difference(&reached).copied().collect();
        while !remaining.is_empty() {
            let lookups: Vec<(usize, Vec<String>)> = remaining
                .iter()
                .map(|leaf| (*leaf, self.lookup_columns(graph, *leaf, &reached, known_columns)))
                .collect();
            let mut by_column = lookups.iter().filter(|(_, columns)| !columns.is_empty());
            let cheap_lookup = by_column
                .clone()
                .find(|(leaf, columns)| self.has_index(graph.scan_sources[*leaf], columns, reason));
            let next = match (cheap_lookup, by_column.next()) {
                (Some((leaf, _)), _) => *leaf,
                (None, Some((leaf, columns))) => {
                    self.add_missing_index(graph.scan_sources[*leaf], columns, reason);
                    *leaf
                }
                // No index would help.
                (None, None) => lookups[0].0,
            };
            reached.insert(next);
            remaining.remove(&next);
        }
    }

    /// Looks rows of a source up as time passes.
    fn check_clock_lookup(&mut self, source: Source, column: &str) {
        let columns = [column.to_owned()];
        if !self.has_index(source, &columns, &LookupReason::TimePassed) {
            self.add_missing_index(source, &columns, &LookupReason::TimePassed);
        }
    }

    /// The columns of a leaf by which it can be looked up from those that are reached.
    fn lookup_columns(
        &self,
        graph: &JoinGraph,
        leaf: usize,
        reached: &ScanSet,
        known_columns: &[ColumnId],
    ) -> Vec<String> {
        let source = graph.scan_sources[leaf];
        let sides =
            graph.equalities.iter().flat_map(|(left, right)| [(left, right), (right, left)]);
        let by_sides = sides
            .filter(|(_, other)| graph.is_computable(other, reached))
            .filter_map(|(one, _)| graph.column_in_scan(leaf, one))
            .filter(|(name, is_text)| !is_text || self.has_text_index(source, name))
            .map(|(name, _)| name);
        let origins = known_columns.iter().filter_map(|id| graph.columns.get(id)).flatten();
        let by_keys = origins.filter(|(place, _)| *place == leaf).map(|(_, name)| name.as_str());
        let mut columns: Vec<String> = Vec::new();
        for name in by_sides.chain(by_keys) {
            if !columns.iter().any(|column| column == name) {
                columns.push(name.to_owned());
            }
        }
        columns
    }

    fn table_facts(&self, source: Source) -> Option<(usize, &TableFacts)> {
        match source {
            Source::Table(table) => Some((table, self.tables.get(&table)?)),
            Source::Stage(_) | Source::Recursion => None,
        }
    }

    fn has_text_index(&self, source: Source, column: &str) -> bool {
        let facts = self.table_facts(source);
        facts.is_none_or(|(_, facts)| facts.text_indexed_columns.contains(column))
    }

    /// Whether rows of a source are found by one of these columns at little cost, with the indexes
    /// that are missing.
    fn has_index(&mut self, source: Source, columns: &[String], reason: &LookupReason) -> bool {
        let Some((table, facts)) = self.table_facts(source) else {
            return true;
        };
        if facts.is_small || columns.iter().any(|name| facts.indexed_columns.contains(name)) {
            return true;
        }
        let mut missing = self.missing.iter_mut();
        let existing =
            missing.find(|index| index.table == table && columns.contains(&index.columns[0]));
        existing.map(|one| one.add_reason(reason)).is_some()
    }

    fn add_missing_index(&mut self, source: Source, columns: &[String], reason: &LookupReason) {
        if let Source::Table(table) = source {
            let mut index = MissingIndex {
                table,
                columns: columns.to_vec(),
                changed_tables: BTreeSet::new(),
                is_for_recomputation: false,
                is_for_clock: false,
            };
            index.add_reason(reason);
            self.missing.push(index);
        }
    }
}

impl MissingIndex {
    fn add_reason(&mut self, reason: &LookupReason) {
        match reason {
            LookupReason::Changed(tables) => self.changed_tables.extend(tables),
            LookupReason::Recomputation => self.is_for_recomputation = true,
            LookupReason::TimePassed => self.is_for_clock = true,
        }
    }
}

#[cfg(test)]
mod tests;
