//! Window functions: their calls are taken out of expressions, and computed by stages of
//! partitions.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node as Parsed, WindowDef};

use super::children::children;
use super::expressions::marked;
use super::{Analysis, distinct};
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
    pub fn of_each<'a>(&mut self, values: impl Iterator<Item = &'a Parsed>) {
        if let Some(over) = self.call.over.as_deref_mut() {
            over.partition_clause.extend(values.cloned());
        }
    }

    /// Changes its expressions by `change`.
    pub fn change(
        &mut self,
        change: &mut impl FnMut(&mut Parsed) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut call = NodeEnum::FuncCall(self.call.clone());
        children(&mut call)?.into_iter().try_for_each(change)?;
        if let NodeEnum::FuncCall(call) = call {
            self.call = call;
        }
        Ok(())
    }

    /// The call as a parse node.
    pub fn parsed(&self) -> Parsed {
        Parsed {
            node: Some(NodeEnum::FuncCall(self.call.clone())),
        }
    }

    /// The call with its expressions resolved by `resolved`.
    pub fn resolved(
        self,
        resolved: &mut impl FnMut(&Parsed) -> Result<Expression, Refusal>,
    ) -> Result<Window, Refusal> {
        let over = self.call.over.as_deref();
        let partition = over.map_or(&[][..], |over| &over.partition_clause);
        let partition = partition
            .iter()
            .map(&mut *resolved)
            .collect::<Result<_, _>>()?;
        Ok(Window {
            column: self.column,
            call: resolved(&self.parsed())?,
            partition,
        })
    }
}

impl Analysis<'_> {
    /// Takes the calls of window functions out of an expression. `clause` has the named windows.
    pub(super) fn take_windows(
        &mut self,
        node: &mut Parsed,
        clause: &[Parsed],
        all: &mut Vec<Call>,
    ) -> Result<(), Refusal> {
        let Some(inner) = &mut node.node else {
            return Ok(());
        };
        if let NodeEnum::FuncCall(call) = inner
            && let Some(over) = call.over.as_deref_mut()
        {
            *over = written_out(over, clause)?;
            let column = self.new_column();
            let call = call.clone();
            *inner = marked(column);
            all.push(Call { column, call });
            return Ok(());
        }
        for child in children(inner)? {
            self.take_windows(child, clause, all)?;
        }
        Ok(())
    }

    /// Adds stages that compute window functions over rows.
    pub(super) fn windowed(&mut self, node: Node, mut windows: Vec<Window>) -> Node {
        // Fewest partition columns first: a call shares a stage if it has all the columns of that
        // stage among its own.
        windows.sort_by_key(|window| window.partition.len());
        let mut stages: Vec<Vec<Window>> = Vec::new();
        for window in windows {
            let fits = |stage: &&mut Vec<Window>| {
                let mut of_stage = stage[0].partition.iter();
                of_stage.all(|key| window.partition.contains(key))
            };
            match stages.iter_mut().find(fits) {
                Some(stage) => stage.push(window),
                None => stages.push(vec![window]),
            }
        }
        stages
            .into_iter()
            .fold(node, |node, windows| self.partitions(node, windows))
    }

    fn partitions(&mut self, node: Node, windows: Vec<Window>) -> Node {
        let mut computed = Vec::new();
        let by: Vec<ColumnId> = windows[0]
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
        let windows = windows
            .into_iter()
            .map(|window| (window.column, window.call));
        self.partitioned(projected(node, computed), by, windows.collect(), None)
    }

    /// A stage of partitions over rows.
    pub(super) fn partitioned(
        &mut self,
        input: Node,
        by: Vec<ColumnId>,
        windows: Vec<(ColumnId, Expression)>,
        filter: Option<Expression>,
    ) -> Node {
        let mut columns = input.columns();
        columns.extend(windows.iter().map(|(id, _)| *id));
        let keeps = StageContents::Partitions {
            by: distinct(&by),
            windows,
            filter,
            columns: distinct(&columns),
        };
        self.stage(Stage {
            input,
            contents: keeps,
        })
    }
}

/// Adds computed columns to rows.
pub(crate) fn projected(node: Node, columns: Vec<(ColumnId, Expression)>) -> Node {
    if columns.is_empty() {
        node
    } else {
        Node::Project {
            input: Box::new(node),
            columns,
        }
    }
}

/// The window definition with the named window that it refers to inserted.
fn written_out(over: &WindowDef, clause: &[Parsed]) -> Result<WindowDef, Refusal> {
    let find = |name: &str| {
        let mut all = clause.iter().filter_map(|one| match &one.node {
            Some(NodeEnum::WindowDef(def)) => Some(&**def),
            _ => None,
        });
        let found = all.find(|def| def.name == name);
        let missing = || Refusal::new(format!("the window `{name}`"), over.location, "define it");
        written_out_definition(found.ok_or_else(missing)?, clause)
    };
    if over.name.is_empty() {
        written_out_definition(over, clause)
    } else {
        find(&over.name)
    }
}

fn written_out_definition(over: &WindowDef, clause: &[Parsed]) -> Result<WindowDef, Refusal> {
    let mut whole = over.clone();
    whole.name.clear();
    if whole.refname.is_empty() {
        return Ok(whole);
    }
    let named = WindowDef {
        name: std::mem::take(&mut whole.refname),
        location: over.location,
        ..WindowDef::default()
    };
    let base = written_out(&named, clause)?;
    whole.partition_clause = base.partition_clause;
    if whole.order_clause.is_empty() {
        whole.order_clause = base.order_clause;
    }
    Ok(whole)
}
