//! The table of a stage.

use super::key::HASH_COLUMN;
use crate::core::expression::quote_identifier;

/// Fill factor of tables in percent: an updated row finds room on its own page, and the update
/// touches no index.
const FILLFACTOR: u32 = 85;

/// Column with the number of copies of a row, or of rows in a group.
pub(crate) const COUNT_COLUMN: &str = "egret_count";

/// The table of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table, qualified and quoted.
    pub name: String,
    /// Names and types of its columns, in order.
    pub columns: Vec<(String, String)>,
    /// The columns of its main index.
    pub index_columns: Vec<String>,
    /// Whether that index is unique.
    pub is_unique: bool,
    /// Expression list of a second index.
    pub second_index: Option<String>,
    /// Name of a table with the last row up to which this one is complete, if it does not have all
    /// rows.
    pub edge_table: Option<String>,
    /// The column with the number of copies of a row; none if each row is there once.
    pub count_column: Option<&'static str>,
}

impl Table {
    /// The statements that create the table and its indexes.
    pub(crate) fn create_statements(&self) -> Vec<String> {
        let columns = self.columns.iter();
        let list: Vec<String> =
            columns.map(|(name, kind)| format!("{} {kind}", quote_identifier(name))).collect();
        let mut statements = vec![format!(
            "CREATE TABLE {} ({}) WITH (fillfactor = {FILLFACTOR})",
            self.name,
            list.join(", ")
        )];
        if !self.index_columns.is_empty() {
            let names: Vec<String> =
                self.index_columns.iter().map(|name| quote_identifier(name)).collect();
            let (unique, nulls) =
                if self.is_unique { ("UNIQUE ", " NULLS NOT DISTINCT") } else { ("", "") };
            let (name, names) = (&self.name, names.join(", "));
            statements.push(format!("CREATE {unique}INDEX ON {name} ({names}){nulls}"));
        }
        if let Some(expressions) = &self.second_index {
            statements.push(format!("CREATE INDEX ON {} ({expressions})", self.name));
        }
        if let Some(edge) = &self.edge_table {
            let list: Vec<String> = visible_columns(&self.columns)
                .map(|(name, kind)| format!("{} {kind}", quote_identifier(name)))
                .collect();
            statements.push(format!("CREATE TABLE {edge} ({})", list.join(", ")));
        }
        statements
    }
}

impl Table {
    /// A null with the type of a column: a cast would not give the type of a domain.
    pub(super) fn typed_null(&self, column: &str) -> String {
        format!("(NULL::{}).{column}", self.name)
    }
}

/// The columns of a stage that are not maintained internally.
fn visible_columns(columns: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    columns.iter().filter(|(name, _)| name != COUNT_COLUMN && name != HASH_COLUMN)
}
