//! The SQL that records what changes in a table: a table for changes, and triggers that fill it.
//!
//! A trigger fires once for a statement and copies what it changed, from the transition tables, with the id of the
//! transaction and a weight. Nothing that happens to the table may make the user's statement fail: a column that was dropped is
//! null in what is recorded, and one that has another type is noticed before anything is read as the old type. Such a change,
//! and anything else that cannot be said by rows, is recorded as a row with weight 0, a *break*: views that read the table are
//! computed anew.

use super::expression::quoted;
use super::sql::WEIGHT;

/// The column with the id of the transaction that changed a row.
pub const TRANSACTION: &str = "egret_xid";

/// A table that changes are recorded of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its number among all.
    pub id: i64,
    /// The columns that some view needs.
    pub columns: Vec<CapturedColumn>,
    /// Changes that take more bytes are not recorded any more.
    pub size_max: u64,
}

/// A column that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedColumn {
    /// Its name.
    pub name: String,
    /// Its type, without modifiers, so that no value is changed or refused when those are.
    pub sql_type: String,
    /// The type that it is recorded with: of a domain what it is made of, which always takes nulls.
    pub recorded_type: String,
    /// Its collation, where it is not that of the type that it is recorded with.
    pub collation: Option<String>,
    /// The oid of its type.
    pub type_oid: u32,
    /// Whether values that are equal look the same.
    pub is_exact: bool,
}

/// What a change comes from: the transition table and the weight of its rows.
const OLD: (&str, &str) = ("egret_old", "-1");
const NEW: (&str, &str) = ("egret_new", "1");

impl CapturedColumn {
    /// As a table for changes is made with it.
    fn declared(&self) -> String {
        let (name, kind) = (quoted(&self.name), &self.recorded_type);
        match &self.collation {
            Some(collation) => format!("{name} {kind} COLLATE {collation}"),
            None => format!("{name} {kind}"),
        }
    }

    /// What was recorded, called `recorded`, with the type that it has in the table.
    pub fn read(&self, recorded: &str) -> String {
        match self.sql_type == self.recorded_type {
            true => recorded.to_owned(),
            false => format!("{recorded}::{}", self.sql_type),
        }
    }
}

impl Captured {
    /// The table for changes.
    pub fn changes(&self) -> String {
        format!("egret.changes_{}", self.id)
    }

    /// The function that the triggers call.
    pub fn function(&self) -> String {
        format!("egret.capture_{}", self.id)
    }

    /// What makes the table for changes.
    fn create_changes(&self) -> Vec<String> {
        let columns = self.columns.iter();
        let columns: String = columns
            .map(|column| format!(", {}", column.declared()))
            .collect();
        let table = self.changes();
        vec![
            format!(
                "CREATE TABLE {table} ({TRANSACTION} xid8 NOT NULL, {WEIGHT} smallint NOT NULL{columns}) \
                 WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, \
                 autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)"
            ),
            // Empty but for breaks: it tells cheaply whether there is one.
            format!("CREATE INDEX ON {table} ({TRANSACTION}) WHERE {WEIGHT} = 0"),
        ]
    }

    /// What makes the function that the triggers call. It has the rights of whoever makes it: no name in it is looked for
    /// where a writer says.
    pub fn create_function(&self) -> String {
        let table = self.changes();
        let names: String = self
            .columns
            .iter()
            .map(|column| format!(", {}", quoted(&column.name)))
            .collect();
        let copy = |sources: &[(&str, &str)]| {
            let selects: Vec<String> = sources.iter().map(|from| self.rows_of(from)).collect();
            format!(
                "INSERT INTO {table} ({TRANSACTION}, {WEIGHT}{names}) {}",
                selects.join(" UNION ALL ")
            )
        };
        let (fits_new, fits_old) = (self.fits(NEW.0), self.fits(OLD.0));
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
             SET search_path = pg_catalog, pg_temp AS $egret$\n\
             BEGIN\n\
             IF pg_catalog.pg_relation_size('{table}') > {size_max} THEN\n\
             INSERT INTO {table} ({TRANSACTION}, {WEIGHT}) SELECT pg_catalog.pg_current_xact_id(), 0\n\
             WHERE NOT EXISTS (SELECT FROM {table} WHERE {WEIGHT} = 0 AND {TRANSACTION} = pg_catalog.pg_current_xact_id());\n\
             RETURN NULL;\n\
             END IF;\n\
             IF TG_OP = 'INSERT' THEN IF {fits_new} THEN {insert}; RETURN NULL; END IF;\n\
             ELSIF TG_OP = 'UPDATE' THEN IF {fits_new} THEN {update}; RETURN NULL; END IF;\n\
             ELSIF TG_OP = 'DELETE' THEN IF {fits_old} THEN {delete}; RETURN NULL; END IF;\n\
             END IF;\n\
             INSERT INTO {table} ({TRANSACTION}, {WEIGHT}) VALUES (pg_catalog.pg_current_xact_id(), 0);\n\
             RETURN NULL;\n\
             END $egret$",
            function = self.function(),
            size_max = self.size_max,
            insert = copy(&[NEW]),
            update = copy(&[OLD, NEW]),
            delete = copy(&[OLD]),
        )
    }

    /// The rows of a transition table. A column that the table does not have any more is found outside of it, as null.
    fn rows_of(&self, (table, weight): &(&str, &str)) -> String {
        let list: String = self
            .columns
            .iter()
            .map(|column| format!(", r.{}", quoted(&column.name)))
            .collect();
        format!(
            "SELECT pg_catalog.pg_current_xact_id(), {weight}{list} FROM {}",
            self.with_fallback(table)
        )
    }

    fn with_fallback(&self, table: &str) -> String {
        let columns = self.columns.iter();
        let nulls: Vec<String> = columns
            // By the column that takes it: types are renamed.
            .map(|column| {
                let name = quoted(&column.name);
                format!("(NULL::{}).{name} AS {name}", self.changes())
            })
            .collect();
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|column| quoted(&column.name))
            .collect();
        format!(
            "(SELECT {}) AS f CROSS JOIN LATERAL (SELECT {} FROM {table}) AS r",
            nulls.join(", "),
            names.join(", ")
        )
    }

    /// Whether the columns have the types that are recorded. Looked at before a statement is planned that would not
    /// do with others.
    fn fits(&self, table: &str) -> String {
        let each: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                format!(
                    "pg_catalog.pg_typeof(r.{}) OPERATOR(pg_catalog.=) {}::pg_catalog.regtype",
                    quoted(&column.name),
                    column.type_oid
                )
            })
            .collect();
        match each.is_empty() {
            true => "true".to_owned(),
            false => format!(
                "coalesce((SELECT {} FROM {} LIMIT 1), true)",
                each.join(" AND "),
                self.with_fallback(table)
            ),
        }
    }

    /// The triggers on a table: on this one, or on one of its partitions.
    pub fn create_triggers(&self, on: &str) -> Vec<String> {
        let function = self.function();
        let trigger = |name: &str, event: &str, referencing: &str| {
            let name = quoted(&format!("egret_{name}_{}", self.id));
            [
                format!(
                    "CREATE OR REPLACE TRIGGER {name} AFTER {event} ON {on} {referencing} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
                ),
                format!("ALTER TABLE {on} ENABLE ALWAYS TRIGGER {name}"),
            ]
        };
        let (old, new) = (OLD.0, NEW.0);
        let new_rows = format!("REFERENCING NEW TABLE AS {new}");
        let old_rows = format!("REFERENCING OLD TABLE AS {old}");
        let both = format!("REFERENCING OLD TABLE AS {old} NEW TABLE AS {new}");
        [
            trigger("insert", "INSERT", &new_rows),
            trigger("update", "UPDATE", &both),
            trigger("delete", "DELETE", &old_rows),
            trigger("truncate", "TRUNCATE", ""),
        ]
        .concat()
    }

    /// What makes all of it but the triggers.
    pub fn install(&self) -> Vec<String> {
        let mut all = self.create_changes();
        all.push(self.create_function());
        all.push(format!(
            "REVOKE ALL ON FUNCTION {}() FROM PUBLIC",
            self.function()
        ));
        all
    }

    /// What records a column no longer.
    pub fn drop_column(&self, column: &CapturedColumn) -> String {
        let (table, name) = (self.changes(), quoted(&column.name));
        format!("ALTER TABLE {table} DROP COLUMN {name}")
    }

    /// What records one more column.
    pub fn add_column(&self, column: &CapturedColumn) -> String {
        format!(
            "ALTER TABLE {} ADD COLUMN {}",
            self.changes(),
            column.declared()
        )
    }
}
