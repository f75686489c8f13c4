//! Which views read which, and how each of them stands.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::report::View;
use crate::output::listing;

/// The views of one database, with the tables that they read.
struct Graph<'a> {
    views: BTreeMap<&'a str, &'a View>,
    /// The component of each view: the first view in it.
    components: BTreeMap<&'a str, &'a str>,
    /// How many views are below each.
    depths: BTreeMap<&'a str, usize>,
}

/// The graph as trees. A view stands under one of those that it reads, and names the others.
pub(super) fn text(views: &[View]) -> String {
    let mut rows = Vec::new();
    for (database, graph) in graphs_by_database(views) {
        let heading = format!("database {database}");
        rows.push(row(&[&heading]));
        for component in graph.trees() {
            rows.extend(component);
            rows.push(row(&[]));
        }
    }
    let head = ["view", "mode", "schedule", "state", "lag", "waiting", "also reads"];
    listing(&head, rows)
}

/// The graph for programs.
#[derive(Debug, Serialize)]
pub(super) struct GraphReport<'a> {
    nodes: Vec<Node<'a>>,
    edges: Vec<Edge<'a>>,
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    database: &'a str,
    name: &'a str,
    kind: &'static str,
    #[serde(flatten)]
    view: Option<ViewNode<'a>>,
}

/// How a view stands.
#[derive(Debug, Serialize)]
struct ViewNode<'a> {
    /// The first view of those that are refreshed together.
    component: &'a str,
    mode: &'a str,
    schedule: Option<&'a str>,
    state: &'a str,
    lag_ms: Option<u64>,
    waiting_changes: i64,
}

#[derive(Debug, Serialize)]
struct Edge<'a> {
    database: &'a str,
    /// The table or view that is read.
    from: &'a str,
    /// The view that reads it.
    to: &'a str,
}

/// Nodes and edges, in order of databases and names.
pub(super) fn to_report(views: &[View]) -> GraphReport<'_> {
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for (database, graph) in graphs_by_database(views) {
        let reads = graph.views.values().flat_map(|view| &view.reads);
        let names: BTreeSet<&str> =
            reads.map(String::as_str).chain(graph.views.keys().copied()).collect();
        for name in names {
            let view = graph.views.get(name);
            nodes.push(Node {
                database,
                name,
                kind: if view.is_some() { "view" } else { "table" },
                view: view.map(|view| ViewNode {
                    component: graph.components[name],
                    mode: &view.mode,
                    schedule: view.schedule.as_deref(),
                    state: &view.state,
                    lag_ms: view.lag_ms,
                    waiting_changes: view.waiting_changes,
                }),
            });
        }
        for (to, view) in &graph.views {
            let from: BTreeSet<&str> = view.reads.iter().map(String::as_str).collect();
            let read = from.into_iter().map(|from| Edge { database, from, to });
            edges.extend(read);
        }
    }
    GraphReport { nodes, edges }
}

fn graphs_by_database(views: &[View]) -> BTreeMap<&str, Graph<'_>> {
    let mut databases: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
    for view in views {
        databases.entry(&view.database).or_default().push(view);
    }
    let graph = |(database, views)| (database, Graph::new(views));
    databases.into_iter().map(graph).collect()
}

impl<'a> Graph<'a> {
    fn new(views: Vec<&'a View>) -> Self {
        let views: BTreeMap<&str, &View> =
            views.into_iter().map(|view| (view.name.as_str(), view)).collect();
        let mut graph = Self {
            components: views.keys().map(|name| (*name, *name)).collect(),
            depths: BTreeMap::new(),
            views,
        };
        let names = graph.views.keys();
        let edges = names.flat_map(|name| graph.read_views(name).map(|read| (*name, read)));
        for (name, read) in edges.collect::<Vec<_>>() {
            let (left, right) = (graph.components[name], graph.components[read]);
            let (first, second) = (left.min(right), left.max(right));
            let components = graph.components.values_mut();
            components.filter(|component| **component == second).for_each(|of| *of = first);
        }
        // A view reads those that were there before it: there is no circle.
        while let Some((name, depth)) = graph.next_depth() {
            graph.depths.insert(name, depth);
        }
        graph
    }

    /// The depth of a view whose depth is not known yet, and which reads none of those.
    fn next_depth(&self) -> Option<(&'a str, usize)> {
        let mut unresolved = self.views.iter().filter(|(name, _)| !self.depths.contains_key(*name));
        unresolved.find_map(|(name, _)| {
            let depths = self.read_views(name).map(|read| self.depths.get(read));
            let deepest = depths.collect::<Option<Vec<_>>>()?.into_iter().max();
            Some((*name, deepest.map_or(0, |depth| depth + 1)))
        })
    }

    /// The views among what a view reads.
    fn read_views(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let reads = self.views[name].reads.iter();
        reads.filter_map(|read| Some(*self.views.get_key_value(read.as_str())?.0))
    }

    /// Under what a view stands: the view that comes last among those that it reads, else its first
    /// table.
    fn parent(&self, name: &str) -> Option<&'a str> {
        let mut reads: Vec<&str> = self.read_views(name).collect();
        reads.sort_by(|left, right| {
            self.depths[left].cmp(&self.depths[right]).then(right.cmp(left))
        });
        let view = self.views[name];
        reads.pop().or_else(|| view.reads.first().map(String::as_str))
    }

    /// The rows of each component.
    fn trees(&self) -> Vec<Vec<Vec<String>>> {
        let mut children: BTreeMap<(&str, Option<&str>), Vec<&str>> = BTreeMap::new();
        for (name, component) in &self.components {
            let siblings = children.entry((component, self.parent(name))).or_default();
            siblings.push(name);
        }
        let component_names: BTreeSet<&str> = self.components.values().copied().collect();
        let tree = |component: &str| {
            let mut rows = Vec::new();
            let roots = children.iter().filter(|((tree_component, parent), _)| {
                *tree_component == component
                    && parent.is_none_or(|parent| !self.views.contains_key(parent))
            });
            for ((_, table), names) in roots {
                let table = table.map(|table| row(&[table, "table"]));
                let level = usize::from(table.is_some());
                rows.extend(table);
                for name in names {
                    self.push_view(component, name, level, &children, &mut rows);
                }
            }
            rows
        };
        component_names.into_iter().map(tree).collect()
    }

    fn push_view(
        &self,
        component: &str,
        name: &str,
        level: usize,
        children: &BTreeMap<(&str, Option<&str>), Vec<&str>>,
        rows: &mut Vec<Vec<String>>,
    ) {
        let view = self.views[name];
        let parent = self.parent(name);
        let others = view
            .reads
            .iter()
            .map(String::as_str)
            .collect::<BTreeSet<&str>>()
            .into_iter()
            .filter(|read| Some(*read) != parent);
        let waiting = match view.waiting_changes {
            0 => String::new(),
            changes => changes.to_string(),
        };
        rows.push(row(&[
            &format!("{}{name}", "  ".repeat(level)),
            &view.mode,
            &view.schedule(),
            &view.state,
            &view.lag(),
            &waiting,
            &others.collect::<Vec<_>>().join(", "),
        ]));
        let child_views = children.get(&(component, Some(name)));
        for name in child_views.into_iter().flatten() {
            self.push_view(component, name, level + 1, children, rows);
        }
    }
}

/// A row of the table, of which the last columns may be empty.
fn row(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests;
