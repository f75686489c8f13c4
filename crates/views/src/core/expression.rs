//! Expressions as SQL text with placeholders for columns.
//!
//! Expressions are not interpreted: their text comes from the server, with every name resolved.
//! Only the columns in them are known, so that the same expression can be evaluated over a table,
//! over its changes, or over both.

use std::collections::{BTreeMap, BTreeSet};

/// A column of some operator of a view, unlike that of any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// Names of columns at the place where an expression is inserted.
pub type Names = BTreeMap<ColumnId, String>;

/// SQL text of an expression, with holes for its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Column(ColumnId),
}

/// Prefix of the name that stands for a column in the text of an expression under construction. No
/// user's column has it: a name with a dollar sign is printed in quotes, and the prefix is searched
/// with its quote.
const MARK: &str = "\"egret$";

impl Expression {
    /// An expression that is a single column.
    pub fn column(column: ColumnId) -> Self {
        Self {
            pieces: vec![Piece::Column(column)],
        }
    }

    /// For messages: columns are printed by their numbers.
    pub fn shown(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Column(id) => format!("#{}", id.0),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// SQL text without any columns.
    pub fn constant(text: &str) -> Self {
        Self {
            pieces: vec![Piece::Text(text.to_owned())],
        }
    }

    /// The expression, cast to a type.
    pub fn cast(&self, sql_type: &str) -> Self {
        self.within("CAST(", &format!(" AS {sql_type})"))
    }

    /// A call with this as its argument.
    pub(crate) fn argument_of(&self, function: &str) -> Self {
        self.within(&format!("{function}("), ")")
    }

    /// The conjunction of conditions; `true` if there are none.
    pub fn all(conditions: &[Self]) -> Self {
        match conditions {
            [] => Self::constant("true"),
            [only] => only.clone(),
            [first, others @ ..] => others
                .iter()
                .fold(first.clone(), |all, one| all.infix("AND", one)),
        }
    }

    /// This and another expression with a binary operator between them.
    pub(crate) fn infix(&self, operator: &str, other: &Self) -> Self {
        let mut both = self.within("(", &format!(") {operator} ("));
        both.pieces.extend(other.pieces.iter().cloned());
        both.pieces.push(Piece::Text(")".to_owned()));
        both
    }

    /// This expression and another, separated by a comma.
    pub fn beside(&self, other: &Self) -> Self {
        let mut both = self.within("", ", ");
        both.pieces.extend(other.pieces.iter().cloned());
        both
    }

    /// This expression with a test after it, such as `IS NULL`.
    pub(crate) fn tested(&self, test: &str) -> Self {
        self.within("(", &format!(") {test}"))
    }

    /// This expression with text before and after it.
    pub fn within(&self, before: &str, after: &str) -> Self {
        let mut pieces = vec![Piece::Text(before.to_owned())];
        pieces.extend(self.pieces.iter().cloned());
        pieces.push(Piece::Text(after.to_owned()));
        Self { pieces }
    }

    /// The internal name that stands for a column in the text of an expression.
    pub fn mark(column: ColumnId) -> String {
        format!("egret${}", column.0)
    }

    /// Its text with internal names for columns.
    pub fn marked(&self) -> String {
        let columns = self.columns().into_iter();
        let marks: Names = columns.map(|id| (id, quoted(&Self::mark(id)))).collect();
        self.sql(&marks)
    }

    /// This expression directly followed by another.
    pub fn then(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.pieces.extend(other.pieces.iter().cloned());
        both
    }

    /// This expression with another substituted for a column.
    pub fn with(&self, column: ColumnId, other: &Self) -> Self {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Column(id) if *id == column => other.pieces.clone(),
            piece => vec![piece.clone()],
        });
        Self {
            pieces: pieces.collect(),
        }
    }

    /// Parses text with internal names for columns.
    pub fn read(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(MARK) {
            let after = &rest[at + MARK.len()..];
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let id = after[..digits].parse().ok();
            let Some(id) = id.filter(|_| after[digits..].starts_with('"')) else {
                break;
            };
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            pieces.push(Piece::Column(ColumnId(id)));
            rest = &after[digits + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Self { pieces }
    }

    /// The column that this is, if it is nothing else.
    pub(crate) fn as_column(&self) -> Option<ColumnId> {
        match self.pieces[..] {
            [Piece::Column(column)] => Some(column),
            _ => None,
        }
    }

    /// The columns in it.
    pub fn columns(&self) -> BTreeSet<ColumnId> {
        let columns = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Column(column) => Some(*column),
            Piece::Text(_) => None,
        });
        columns.collect()
    }

    /// All references to columns, with repetitions, mutable.
    pub(crate) fn columns_mut(&mut self) -> impl Iterator<Item = &mut ColumnId> {
        self.pieces.iter_mut().filter_map(|piece| match piece {
            Piece::Column(column) => Some(column),
            Piece::Text(_) => None,
        })
    }

    /// Its SQL text, with `names` for the columns. Each name must be a complete operand, such as
    /// `t.a` or `(a + b)`.
    ///
    /// # Panics
    /// When a column has no name.
    pub fn sql(&self, names: &Names) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Column(column) => text.push_str(
                    names
                        .get(column)
                        .unwrap_or_else(|| panic!("column {} has a name", column.0)),
                ),
            }
        }
        text
    }

    /// Its SQL text as an operand: in parentheses unless it is a column.
    pub fn operand(&self, names: &Names) -> String {
        match self.as_column() {
            Some(_) => self.sql(names),
            None => format!("({})", self.sql(names)),
        }
    }
}

/// An identifier as it is written in SQL.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests;

/// Name of a column in the table of a stage.
pub(crate) fn stage_column(column: ColumnId) -> String {
    format!("c{}", column.0)
}

/// The column that has this name in the table of a stage.
pub(crate) fn column_of_stage(name: &str) -> Option<ColumnId> {
    let digits = name.strip_prefix('c')?;
    digits.parse().ok().map(ColumnId)
}
