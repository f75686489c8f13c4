//! The trigger function that records the rows of transition tables.

use postgres_protocol::escape::escape_literal;

use super::{
    NEW_ROWS, OLD_ROWS, Segment, TRANSACTION, TransitionTable, changes_table, segment_table,
};
use crate::core::expression::quote_identifier;
use crate::core::sql::WEIGHT;

/// The columns of a table that are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorder {
    /// Number of the capture.
    pub id: i64,
    /// Names of the columns, with the oids of the types that they must have.
    pub columns: Vec<(String, u32)>,
}

impl Recorder {
    /// The INSERT that records the rows of transition tables.
    pub fn insert_statement(&self, into: Segment, sources: &[TransitionTable]) -> String {
        let names: String = self.map_columns(|name| format!(", {name}")).collect();
        let selects: Vec<String> = sources.iter().map(|from| self.select_rows(from)).collect();
        format!(
            "INSERT INTO {} ({TRANSACTION}, {WEIGHT}{names}) {}",
            segment_table(self.id, into),
            selects.join(" UNION ALL ")
        )
    }

    /// The statement that creates the trigger function. It writes to one segment, and needs no lock
    /// on the other. It runs with the rights of its owner, and no name in it is resolved by a
    /// writer's search path.
    pub(crate) fn create_function(&self, into: Segment, size_max: u64) -> String {
        let table = segment_table(self.id, into);
        let (fits_new, fits_old) =
            (self.types_match_condition(NEW_ROWS.name), self.types_match_condition(OLD_ROWS.name));
        let body = format!(
            "BEGIN\n\
             IF pg_catalog.pg_relation_size('{table}') > {size_max} THEN\n\
             INSERT INTO {table} ({TRANSACTION}, {WEIGHT}) SELECT pg_catalog.pg_current_xact_id(), 0\n\
             WHERE NOT EXISTS (SELECT FROM ONLY {table} WHERE {WEIGHT} = 0 AND {TRANSACTION} = pg_catalog.pg_current_xact_id());\n\
             RETURN NULL;\n\
             END IF;\n\
             IF TG_OP = 'INSERT' THEN IF {fits_new} THEN {insert}; RETURN NULL; END IF;\n\
             ELSIF TG_OP = 'UPDATE' THEN\n\
             IF {fits_new} THEN IF NOT ({untouched}) THEN {update}; END IF; RETURN NULL; END IF;\n\
             ELSIF TG_OP = 'DELETE' THEN IF {fits_old} THEN {delete}; RETURN NULL; END IF;\n\
             END IF;\n\
             INSERT INTO {table} ({TRANSACTION}, {WEIGHT}) VALUES (pg_catalog.pg_current_xact_id(), 0);\n\
             RETURN NULL;\n\
             END",
            size_max = size_max.min(u64::MAX >> 1),
            insert = self.insert_statement(into, &[NEW_ROWS]),
            untouched = self.unchanged_condition(),
            update = self.insert_statement(into, &[OLD_ROWS, NEW_ROWS]),
            delete = self.insert_statement(into, &[OLD_ROWS]),
        );
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
             SET search_path = pg_catalog, pg_temp AS {}",
            super::trigger_function(self.id),
            escape_literal(&body)
        )
    }

    /// Condition that the columns have the recorded types. Checked first: the INSERT could not be
    /// planned with others.
    pub(crate) fn types_match_condition(&self, table: &str) -> String {
        let columns = self.columns.iter();
        let conditions: Vec<String> = columns
            .map(|(name, type_oid)| {
                format!(
                    "pg_catalog.pg_typeof(r.{}) OPERATOR(pg_catalog.=) {type_oid}::pg_catalog.regtype",
                    quote_identifier(name)
                )
            })
            .collect();
        if conditions.is_empty() {
            "true".to_owned()
        } else {
            format!(
                "coalesce((SELECT {} FROM {} LIMIT 1), true)",
                conditions.join(" AND "),
                self.rows_with_null_fallback(table)
            )
        }
    }

    /// Condition that an UPDATE changed none of the recorded columns, compared bytewise. Relies on
    /// both transition tables having one row order; if they had not, rows would differ and be
    /// recorded, which is safe. The comparison of the first rows decides most statements, and the
    /// FULL JOIN is never a nested loop.
    pub(crate) fn unchanged_condition(&self) -> String {
        let list: Vec<String> = self.map_columns(|name| format!("r.{name}")).collect();
        let row = format!("ROW({})", list.join(", "));
        let first_row = |table: &str| {
            format!("(SELECT {row} FROM {} LIMIT 1)", self.rows_with_null_fallback(table))
        };
        let numbered_rows = |table: &str| {
            format!(
                "(SELECT pg_catalog.row_number() OVER () AS place, {row} AS kept FROM {})",
                self.rows_with_null_fallback(table)
            )
        };
        format!(
            "{} OPERATOR(pg_catalog.*=) {} AND NOT EXISTS (SELECT FROM {} AS o FULL JOIN {} AS n USING (place) \
             WHERE (o.kept OPERATOR(pg_catalog.*=) n.kept) IS NOT TRUE)",
            first_row(OLD_ROWS.name),
            first_row(NEW_ROWS.name),
            numbered_rows(OLD_ROWS.name),
            numbered_rows(NEW_ROWS.name)
        )
    }

    /// The rows of a transition table. A column that the table no longer has resolves to the outer
    /// null.
    fn select_rows(&self, source: &TransitionTable) -> String {
        let TransitionTable { name, weight } = source;
        let list: String = self.map_columns(|name| format!(", r.{name}")).collect();
        format!(
            "SELECT pg_catalog.pg_current_xact_id(), {weight}{list} FROM {}",
            self.rows_with_null_fallback(name)
        )
    }

    fn rows_with_null_fallback(&self, table: &str) -> String {
        // Nulls are typed by the column that receives them: types may be renamed.
        let table_name = changes_table(self.id);
        let nulls: Vec<String> =
            self.map_columns(|name| format!("(NULL::{table_name}).{name} AS {name}")).collect();
        let names: Vec<String> = self.map_columns(str::to_owned).collect();
        format!(
            "(SELECT {}) AS f CROSS JOIN LATERAL (SELECT {} FROM {table}) AS r",
            nulls.join(", "),
            names.join(", ")
        )
    }

    /// Formats each column's quoted name.
    fn map_columns(&self, format_name: impl Fn(&str) -> String) -> impl Iterator<Item = String> {
        self.columns.iter().map(move |(name, _)| format_name(&quote_identifier(name)))
    }
}
