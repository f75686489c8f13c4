//! Window functions: their calls are taken out of expressions, and computed by stages of
//! partitions.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node as Parsed, WindowDef};

use super::children::children;
use super::expressions::internal_reference;
use super::{Analysis, deduplicate};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Node, Stage, StageContents};

/// A call that was taken out of an expression; a column stands for it.
pub struct Call {
    column: ColumnId,
    call: Box<FuncCall>,
}

/// A call with its expressions resolved.
pub struct Window {
    column: ColumnId,
    call: Expression,
    partition: Vec<Expression>,
}

impl Window {
    /// The call and its partition expressions, mutable.
    pub fn expressions(&mut self) -> impl Iterator<Item = &mut Expression> {
        std::iter::once(&mut self.call).chain(&mut self.partition)
    }
}

impl Call {
    /// Adds values to PARTITION BY, so that the call is computed for each of them.
    pub(crate) fn add_partition_keys<'a>(&mut self, values: impl Iterator<Item = &'a Parsed>) {
        if let Some(over) = self.call.over.as_deref_mut() {
            over.partition_clause.extend(values.cloned());
        }
    }

    /// Changes its expressions by `transform`.
    pub(crate) fn transform_children(
        &mut self,
        transform: &mut impl FnMut(&mut Parsed) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut call = NodeEnum::FuncCall(self.call.clone());
        children(&mut call)?.into_iter().try_for_each(transform)?;
        if let NodeEnum::FuncCall(call) = call {
            self.call = call;
        }
        Ok(())
    }

    /// The call as a parse node.
    pub(crate) fn to_node(&self) -> Parsed {
        Parsed { node: Some(NodeEnum::FuncCall(self.call.clone())) }
    }

    /// The call with its expressions resolved by `resolve`.
    pub fn resolve(
        self,
        resolve: &mut impl FnMut(&Parsed) -> Result<Expression, Refusal>,
    ) -> Result<Window, Refusal> {
        let over = self.call.over.as_deref();
        let partition = over.map_or(&[][..], |over| &over.partition_clause);
        let partition = partition.iter().map(&mut *resolve).collect::<Result<_, _>>()?;
        Ok(Window { column: self.column, call: resolve(&self.to_node())?, partition })
    }
}

impl Analysis<'_> {
    /// Takes the calls of window functions out of an expression. `clause` has the named windows.
    pub(super) fn extract_window_calls(
        &mut self,
        node: &mut Parsed,
        clause: &[Parsed],
        calls: &mut Vec<Call>,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        if let NodeEnum::FuncCall(call) = inner
            && let Some(over) = call.over.as_deref_mut()
        {
            *over = resolve_window(over, clause)?;
            let column = self.new_column();
            let call = call.clone();
            *inner = internal_reference(column);
            calls.push(Call { column, call });
            return Ok(());
        }
        for child in children(inner)? {
            self.extract_window_calls(child, clause, calls)?;
        }
        Ok(())
    }

    /// Adds stages that compute window functions over rows.
    pub(super) fn compute_windows(&mut self, node: Node, mut windows: Vec<Window>) -> Node {
        // Fewest partition columns first: a call shares a stage if it has all the columns of that
        // stage among its own.
        windows.sort_by_key(|window| window.partition.len());
        let mut stages: Vec<Vec<Window>> = Vec::new();
        for window in windows {
            let fits = |stage: &&mut Vec<Window>| {
                let mut stage_keys = stage[0].partition.iter();
                stage_keys.all(|key| window.partition.contains(key))
            };
            match stages.iter_mut().find(fits) {
                Some(stage) => stage.push(window),
                None => stages.push(vec![window]),
            }
        }
        stages.into_iter().fold(node, |node, windows| self.compute_partitions(node, windows))
    }

    fn compute_partitions(&mut self, node: Node, windows: Vec<Window>) -> Node {
        let mut computed = Vec::new();
        let partition_columns: Vec<ColumnId> = windows[0]
            .partition
            .iter()
            .map(|key| {
                key.as_column().unwrap_or_else(|| {
                    let id = self.new_column();
                    computed.push((id, key.clone()));
                    id
                })
            })
            .collect();
        let windows = windows.into_iter().map(|window| (window.column, window.call));
        self.add_partition_stage(
            project_columns(node, computed),
            partition_columns,
            windows.collect(),
            None,
        )
    }

    /// A stage of partitions over rows.
    pub(super) fn add_partition_stage(
        &mut self,
        input: Node,
        partition_columns: Vec<ColumnId>,
        windows: Vec<(ColumnId, Expression)>,
        filter: Option<Expression>,
    ) -> Node {
        let mut columns = input.columns();
        columns.extend(windows.iter().map(|(id, _)| *id));
        let contents = StageContents::Partitions {
            partition_columns: deduplicate(&partition_columns),
            windows,
            filter,
            columns: deduplicate(&columns),
        };
        self.add_stage(Stage { input, contents })
    }
}

/// Adds computed columns to rows.
pub(crate) fn project_columns(node: Node, columns: Vec<(ColumnId, Expression)>) -> Node {
    if columns.is_empty() { node } else { Node::Project { input: Box::new(node), columns } }
}

/// The window definition with the named window that it refers to inserted.
fn resolve_window(over: &WindowDef, clause: &[Parsed]) -> Result<WindowDef, Refusal> {
    let find_window = |name: &str| {
        let mut definitions = clause.iter().filter_map(|definition| match &definition.node {
            Some(NodeEnum::WindowDef(def)) => Some(&**def),
            _ => None,
        });
        let found = definitions.find(|def| def.name == name);
        let undefined = || Refusal::new(format!("the window `{name}`"), over.location, "define it");
        merge_base_window(found.ok_or_else(undefined)?, clause)
    };
    if over.name.is_empty() { merge_base_window(over, clause) } else { find_window(&over.name) }
}

fn merge_base_window(window: &WindowDef, clause: &[Parsed]) -> Result<WindowDef, Refusal> {
    let mut merged = window.clone();
    merged.name.clear();
    if merged.refname.is_empty() {
        return Ok(merged);
    }
    let reference = WindowDef {
        name: std::mem::take(&mut merged.refname),
        location: window.location,
        ..WindowDef::default()
    };
    let base = resolve_window(&reference, clause)?;
    merged.partition_clause = base.partition_clause;
    if merged.order_clause.is_empty() {
        merged.order_clause = base.order_clause;
    }
    Ok(merged)
}
