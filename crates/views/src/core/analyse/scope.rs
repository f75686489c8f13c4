//! Which names mean which columns.

use crate::core::expression::ColumnId;
use crate::core::refusal::Refusal;

/// What of FROM an expression can name.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Tables, views, subqueries and joins by the name they have in the query.
    pub entries: Vec<Entry>,
    /// Columns that two sides of a join have in common, which are named without either.
    pub merged: Vec<(String, ColumnId)>,
    /// What can be named besides: that of the query around a subquery.
    pub around: Option<Box<Scope>>,
}

/// One of FROM.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// Its columns.
    pub columns: Vec<(String, ColumnId)>,
}

impl Scope {
    /// What `names` mean: a column, or a table and a column.
    ///
    /// # Errors
    /// [`Refusal`] for what is no such column.
    pub fn resolve(&self, names: &[String], offset: i32) -> Result<ColumnId, Refusal> {
        let found = match names {
            [column] => self.unqualified(column),
            [table, column] => self
                .entries
                .iter()
                .find(|entry| entry.name == *table)
                .and_then(|entry| column_of(&entry.columns, column)),
            _ => None,
        };
        if let (None, Some(around)) = (found, &self.around) {
            return around.resolve(names, offset);
        }
        found.ok_or_else(|| {
            let name = names.join(".");
            let (what, advice) = match names.last().map(String::as_str) {
                Some("ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid") => {
                    ("the system column", "leave it out")
                }
                _ => ("the whole row or outer column", "name the columns"),
            };
            Refusal::new(format!("{what} `{name}`"), offset, advice)
        })
    }

    fn unqualified(&self, column: &str) -> Option<ColumnId> {
        let entries = self.entries.iter();
        let mut of_entries = entries.filter_map(|entry| column_of(&entry.columns, column));
        column_of(&self.merged, column).or_else(|| of_entries.next())
    }

    /// The same within a query.
    pub fn within(&self, around: &Self) -> Self {
        Self {
            around: Some(Box::new(around.clone())),
            ..self.clone()
        }
    }

    /// Both, side by side.
    pub fn join(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self.merged.extend(other.merged);
        self
    }
}

/// The column with a name.
pub fn column_of(columns: &[(String, ColumnId)], name: &str) -> Option<ColumnId> {
    let found = columns.iter().find(|(other, _)| other == name);
    found.map(|(_, id)| *id)
}
