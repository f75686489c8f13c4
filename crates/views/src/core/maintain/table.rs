//! The table of a stage.

use super::key::HASH;
use crate::core::expression::quoted;

/// Fill factor of tables in percent: an updated row finds room on its own page, and the update
/// touches no index.
const FILLFACTOR: u32 = 85;

/// Column with the number of copies of a row, or of rows in a group.
pub const COUNT: &str = "egret_count";

/// The table of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table, qualified and quoted.
    pub name: String,
    /// Names and types of its columns, in order.
    pub columns: Vec<(String, String)>,
    /// The columns of its main index.
    pub indexed: Vec<String>,
    /// Whether that index is unique.
    pub is_unique: bool,
    /// Expression list of a second index.
    pub also_indexed: Option<String>,
    /// Name of a table with the last row up to which this one is complete, if it does not have all
    /// rows.
    pub edge: Option<String>,
    /// The column with the number of copies of a row; none if each row is there once.
    pub count: Option<&'static str>,
}

impl Table {
    /// The statements that create the table and its indexes.
    pub fn create(&self) -> Vec<String> {
        let columns = self.columns.iter();
        let list: Vec<String> = columns
            .map(|(name, kind)| format!("{} {kind}", quoted(name)))
            .collect();
        let mut all = vec![format!(
            "CREATE TABLE {} ({}) WITH (fillfactor = {FILLFACTOR})",
            self.name,
            list.join(", ")
        )];
        if !self.indexed.is_empty() {
            let names: Vec<String> = self.indexed.iter().map(|name| quoted(name)).collect();
            let (unique, nulls) = if self.is_unique {
                ("UNIQUE ", " NULLS NOT DISTINCT")
            } else {
                ("", "")
            };
            let (name, names) = (&self.name, names.join(", "));
            all.push(format!("CREATE {unique}INDEX ON {name} ({names}){nulls}"));
        }
        if let Some(also) = &self.also_indexed {
            all.push(format!("CREATE INDEX ON {} ({also})", self.name));
        }
        if let Some(edge) = &self.edge {
            let list: Vec<String> = columns_of_rows(&self.columns)
                .map(|(name, kind)| format!("{} {kind}", quoted(name)))
                .collect();
            all.push(format!("CREATE TABLE {edge} ({})", list.join(", ")));
        }
        all
    }
}

impl Table {
    /// A null with the type of a column: a cast would not give the type of a domain.
    pub(super) fn null_of(&self, column: &str) -> String {
        format!("(NULL::{}).{column}", self.name)
    }
}

/// The columns of a stage that are not maintained internally.
fn columns_of_rows(all: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    all.iter().filter(|(name, _)| name != COUNT && name != HASH)
}
