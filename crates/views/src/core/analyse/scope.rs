//! Resolves names to columns.

use crate::core::expression::ColumnId;
use crate::core::refusal::Refusal;

/// The names that an expression can use.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Items of FROM, by their names in the query.
    pub entries: Vec<Entry>,
    /// Columns of USING, which are named without a table.
    pub using_columns: Vec<(String, ColumnId)>,
    /// The scope of the outer query.
    pub outer: Option<Box<Scope>>,
}

/// One item of FROM with the names of its columns.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its alias, or the name of its table.
    pub name: String,
    pub columns: Vec<(String, ColumnId)>,
}

impl Scope {
    /// Resolves a column name, or a table and a column name.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such column.
    pub fn resolve(&self, names: &[String], offset: i32) -> Result<ColumnId, Refusal> {
        let found = match names {
            [column] => self.resolve_unqualified(column),
            [table, column] => self
                .entries
                .iter()
                .find(|entry| entry.name == *table)
                .and_then(|entry| find_column(&entry.columns, column)),
            _ => None,
        };
        if let (None, Some(around)) = (found, &self.outer) {
            return around.resolve(names, offset);
        }
        found.ok_or_else(|| {
            let name = names.join(".");
            let (construct, advice) = match names.last().map(String::as_str) {
                Some("ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid") => {
                    ("the system column", "leave it out")
                }
                _ => ("the whole row or outer column", "name the columns"),
            };
            Refusal::new(format!("{construct} `{name}`"), offset, advice)
        })
    }

    fn resolve_unqualified(&self, column: &str) -> Option<ColumnId> {
        let entries = self.entries.iter();
        let mut matches = entries.filter_map(|entry| find_column(&entry.columns, column));
        find_column(&self.using_columns, column).or_else(|| matches.next())
    }

    /// This scope within that of an outer query.
    pub(crate) fn with_outer(&self, outer: &Self) -> Self {
        Self { outer: Some(Box::new(outer.clone())), ..self.clone() }
    }

    /// Both scopes side by side.
    pub fn join(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.using_columns.extend(other.using_columns);
        self
    }
}

/// The column with this name, if there is one.
pub(crate) fn find_column(columns: &[(String, ColumnId)], name: &str) -> Option<ColumnId> {
    let column = columns.iter().find(|(other, _)| other == name);
    column.map(|(_, id)| *id)
}
