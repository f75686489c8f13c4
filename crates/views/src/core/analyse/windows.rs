//! Window functions: their calls are taken out of expressions, and are computed by stages that keep partitions.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node as Parsed, WindowDef};

use super::children::children;
use super::expressions::marked;
use super::{Analysis, distinct};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Keeps, Node, Stage};

/// A call that is taken out: a column stands for it.
pub struct Call {
    column: ColumnId,
    call: Box<FuncCall>,
}

/// A call over the rows of a scope.
pub struct Window {
    column: ColumnId,
    call: Expression,
    partition: Vec<Expression>,
}

impl Window {
    /// What it says.
    pub fn expressions(&mut self) -> impl Iterator<Item = &mut Expression> {
        std::iter::once(&mut self.call).chain(&mut self.partition)
    }
}

impl Call {
    /// Looks at rows of each of these values apart.
    pub fn of_each<'a>(&mut self, values: impl Iterator<Item = &'a Parsed>) {
        if let Some(over) = self.call.over.as_deref_mut() {
            over.partition_clause.extend(values.cloned());
        }
    }

    /// Changes what it is made of.
    ///
    /// # Errors
    /// What `change` has.
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

    /// It, as the parser has it.
    pub fn parsed(&self) -> Parsed {
        Parsed {
            node: Some(NodeEnum::FuncCall(self.call.clone())),
        }
    }

    /// The call in terms of what its parts come to.
    ///
    /// # Errors
    /// What `resolved` has.
    pub fn resolved(
        self,
        resolved: &mut impl FnMut(&Parsed) -> Result<Expression, Refusal>,
    ) -> Result<Window, Refusal> {
        let over = self.call.over.as_deref();
        let partition = over.map_or(&[][..], |over| &over.partition_clause);
        let partition = partition.iter().map(&mut *resolved);
        let partition = partition.collect::<Result<_, _>>()?;
        Ok(Window {
            column: self.column,
            call: resolved(&self.parsed())?,
            partition,
        })
    }
}

impl Analysis<'_> {
    /// Takes the calls of window functions out of an expression. `clause` are the windows that have names.
    ///
    /// # Errors
    /// [`Refusal`].
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

    /// The rows with what window functions come to.
    pub(super) fn windowed(&mut self, node: Node, mut windows: Vec<Window>) -> Node {
        // A partition is made of those of a call that says more of what they have in common.
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
        let by = windows[0].partition.iter();
        let by: Vec<ColumnId> = by
            .map(|key| {
                key.as_column().unwrap_or_else(|| {
                    let id = self.new_column();
                    computed.push((id, key.clone()));
                    id
                })
            })
            .collect();
        let windows = windows.into_iter();
        let windows = windows.map(|window| (window.column, window.call));
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
        let keeps = Keeps::Partitions {
            by: distinct(&by),
            windows,
            filter,
            columns: distinct(&columns),
        };
        self.stage(Stage { input, keeps })
    }
}

/// The rows with further columns.
pub fn projected(node: Node, columns: Vec<(ColumnId, Expression)>) -> Node {
    match columns.is_empty() {
        true => node,
        false => Node::Project {
            input: Box::new(node),
            columns,
        },
    }
}

/// A window without the names of others.
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
    match over.name.is_empty() {
        true => written_out_definition(over, clause),
        false => find(&over.name),
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
