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
const INTERNAL_NAME_PREFIX: &str = "\"egret$";

impl Expression {
    /// An expression that is a single column.
    pub fn column(column: ColumnId) -> Self {
        Self { pieces: vec![Piece::Column(column)] }
    }

    /// For messages: columns are printed by their numbers.
    pub(crate) fn display_text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Column(id) => format!("#{}", id.0),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// SQL text without any columns.
    pub fn constant(text: &str) -> Self {
        Self { pieces: vec![Piece::Text(text.to_owned())] }
    }

    /// The expression, cast to a type.
    pub fn cast(&self, sql_type: &str) -> Self {
        self.wrap("CAST(", &format!(" AS {sql_type})"))
    }

    /// A call with this as its argument.
    pub(crate) fn as_argument_of(&self, function: &str) -> Self {
        self.wrap(&format!("{function}("), ")")
    }

    /// The conjunction of conditions; `true` if there are none.
    pub(crate) fn conjunction(conditions: &[Self]) -> Self {
        match conditions {
            [] => Self::constant("true"),
            [only] => only.clone(),
            [first, others @ ..] => others
                .iter()
                .fold(first.clone(), |conjunction, condition| conjunction.infix("AND", condition)),
        }
    }

    /// This and another expression with a binary operator between them.
    pub(crate) fn infix(&self, operator: &str, other: &Self) -> Self {
        let mut combined = self.wrap("(", &format!(") {operator} ("));
        combined.pieces.extend(other.pieces.iter().cloned());
        combined.pieces.push(Piece::Text(")".to_owned()));
        combined
    }

    /// This expression and another, separated by a comma.
    pub(crate) fn append_to_list(&self, other: &Self) -> Self {
        let mut combined = self.wrap("", ", ");
        combined.pieces.extend(other.pieces.iter().cloned());
        combined
    }

    /// This expression with a test after it, such as `IS NULL`.
    pub(crate) fn with_test(&self, test: &str) -> Self {
        self.wrap("(", &format!(") {test}"))
    }

    /// This expression with text before and after it.
    pub fn wrap(&self, prefix: &str, suffix: &str) -> Self {
        let mut pieces = vec![Piece::Text(prefix.to_owned())];
        pieces.extend(self.pieces.iter().cloned());
        pieces.push(Piece::Text(suffix.to_owned()));
        Self { pieces }
    }

    /// The internal name that stands for a column in the text of an expression.
    pub(crate) fn internal_name(column: ColumnId) -> String {
        format!("egret${}", column.0)
    }

    /// Its text with internal names for columns.
    pub(crate) fn to_internal_text(&self) -> String {
        let columns = self.columns().into_iter();
        let marks: Names =
            columns.map(|id| (id, quote_identifier(&Self::internal_name(id)))).collect();
        self.to_sql(&marks)
    }

    /// This expression directly followed by another.
    pub fn concat(&self, other: &Self) -> Self {
        let mut combined = self.clone();
        combined.pieces.extend(other.pieces.iter().cloned());
        combined
    }

    /// This expression with another substituted for a column.
    pub fn substitute(&self, column: ColumnId, replacement: &Self) -> Self {
        let pieces = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Column(id) if *id == column => replacement.pieces.clone(),
            piece => vec![piece.clone()],
        });
        Self { pieces: pieces.collect() }
    }

    /// Parses text with internal names for columns.
    pub(crate) fn from_internal_text(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(offset) = rest.find(INTERNAL_NAME_PREFIX) {
            let rest_after_prefix = &rest[offset + INTERNAL_NAME_PREFIX.len()..];
            let digits = rest_after_prefix.bytes().take_while(u8::is_ascii_digit).count();
            let id = rest_after_prefix[..digits].parse().ok();
            let Some(id) = id.filter(|_| rest_after_prefix[digits..].starts_with('"')) else {
                break;
            };
            if offset > 0 {
                pieces.push(Piece::Text(rest[..offset].to_owned()));
            }
            pieces.push(Piece::Column(ColumnId(id)));
            rest = &rest_after_prefix[digits + 1..];
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
    pub fn to_sql(&self, names: &Names) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Column(column) => text.push_str(
                    names.get(column).unwrap_or_else(|| panic!("column {} has a name", column.0)),
                ),
            }
        }
        text
    }

    /// Its SQL text as an operand: in parentheses unless it is a column.
    pub(crate) fn to_operand(&self, names: &Names) -> String {
        match self.as_column() {
            Some(_) => self.to_sql(names),
            None => format!("({})", self.to_sql(names)),
        }
    }
}

/// An identifier as it is written in SQL.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests;

/// Name of a column in the table of a stage.
pub(crate) fn stage_column_name(column: ColumnId) -> String {
    format!("c{}", column.0)
}

/// The column that has this name in the table of a stage.
pub(crate) fn parse_stage_column(name: &str) -> Option<ColumnId> {
    let digits = name.strip_prefix('c')?;
    digits.parse().ok().map(ColumnId)
}
