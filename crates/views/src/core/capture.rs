//! The SQL that records what changes in a table: a table for changes, and triggers that fill it.
//!
//! A trigger fires once for a statement and copies what it changed, from the transition tables, with the id of the
//! transaction and a weight. Nothing that happens to the table may make the user's statement fail: a column that was dropped is
//! null in what is recorded, and one that has another type is noticed before anything is read as the old type. Such a change,
//! and anything else that cannot be said by rows, is recorded as a row with weight 0, a *break*: views that read the table are
//! computed anew.

use postgres_protocol::escape::escape_literal;

use super::expression::quoted;
use super::sql::{FRONTIER, WEIGHT};

/// The column with the id of the transaction that changed a row.
pub const TRANSACTION: &str = "egret_xid";

/// How changes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Changes of one table that take more bytes are not recorded any more.
    pub size_max: u64,
    /// Whether a table for changes that is made is unlogged.
    pub is_unlogged: bool,
}

/// A table that changes are recorded of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its number among all.
    pub id: i64,
    /// The columns that some view needs.
    pub columns: Vec<CapturedColumn>,
    /// Changes that take more bytes are not recorded any more.
    pub size_max: u64,
    /// The view that alone reads them, within the transaction that changes the table; none: they wait for all views.
    pub of: Option<i64>,
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
pub const OLD: (&str, &str) = ("egret_old", "-1");
/// The same.
pub const NEW: (&str, &str) = ("egret_new", "1");

/// Statements that are recorded, each by a trigger.
const EVENTS: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "TRUNCATE"];

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

    /// What makes the table for changes. What one view alone reads is of no use after the transaction, so that no crash can take it away.
    pub fn create_changes(&self, recording: Recording) -> Vec<String> {
        let unlogged = match recording.is_unlogged || self.of.is_some() {
            true => "UNLOGGED ",
            false => "",
        };
        let columns = self.columns.iter();
        let columns: String = columns
            .map(|column| format!(", {}", column.declared()))
            .collect();
        let table = self.changes();
        vec![
            format!(
                "CREATE {unlogged}TABLE {table} ({TRANSACTION} xid8 NOT NULL, {WEIGHT} smallint NOT NULL{columns}) \
                 WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, \
                 autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)"
            ),
            // Empty but for breaks: it tells cheaply whether there is one.
            format!("CREATE INDEX ON {table} ({TRANSACTION}) WHERE {WEIGHT} = 0"),
        ]
    }

    /// The statement that records the rows of transition tables.
    pub fn record(&self, sources: &[(&str, &str)]) -> String {
        let columns = self.columns.iter();
        let names: String = columns
            .map(|column| format!(", {}", quoted(&column.name)))
            .collect();
        let selects: Vec<String> = sources.iter().map(|from| self.rows_of(from)).collect();
        format!(
            "INSERT INTO {} ({TRANSACTION}, {WEIGHT}{names}) {}",
            self.changes(),
            selects.join(" UNION ALL ")
        )
    }

    /// What makes the function that the triggers call. It has the rights of whoever makes it: no name in it is looked for
    /// where a writer says.
    pub fn create_function(&self) -> String {
        let table = self.changes();
        let (fits_new, fits_old) = (self.fits(NEW.0), self.fits(OLD.0));
        let body = format!(
            "BEGIN\n\
             IF pg_catalog.pg_relation_size('{table}') > {size_max} THEN\n\
             INSERT INTO {table} ({TRANSACTION}, {WEIGHT}) SELECT pg_catalog.pg_current_xact_id(), 0\n\
             WHERE NOT EXISTS (SELECT FROM {table} WHERE {WEIGHT} = 0 AND {TRANSACTION} = pg_catalog.pg_current_xact_id());\n\
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
            size_max = self.size_max,
            insert = self.record(&[NEW]),
            untouched = self.untouched(),
            update = self.record(&[OLD, NEW]),
            delete = self.record(&[OLD]),
        );
        format!(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER \
             SET search_path = pg_catalog, pg_temp AS {}",
            self.function(),
            escape_literal(&body)
        )
    }

    /// Changes of `from`, what follows FROM, as the table has them.
    pub fn as_recorded(&self, from: &str) -> String {
        let columns = self.columns.iter();
        let list: String = columns
            .map(|column| {
                let name = quoted(&column.name);
                format!("{} AS {name}, ", column.read(&name))
            })
            .collect();
        // What adds up integers is a bigint; of a bigint it would be a numeric.
        format!("SELECT {list}{WEIGHT}::integer AS {WEIGHT} FROM {from}")
    }

    /// The same, each different row once.
    pub fn consolidated(&self, from: &str) -> String {
        let mut list = Vec::new();
        let mut keys = Vec::new();
        for column in &self.columns {
            let name = quoted(&column.name);
            match column.is_exact {
                true => {
                    list.push(format!("{} AS {name}", column.read(&name)));
                    keys.push(name);
                }
                false => {
                    keys.push(format!("{name}::text COLLATE \"C\""));
                    let any = format!("any_value({name})");
                    list.push(format!("{} AS {name}", column.read(&any)));
                }
            }
        }
        list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
        let group = match keys.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", keys.join(", ")),
        };
        format!(
            "SELECT {} FROM {from}{group} HAVING sum({WEIGHT}) <> 0",
            list.join(", ")
        )
    }

    /// The changes that the snapshot which a view has come to did not see: a subquery. The planner takes it for so many rows: what the server knows of
    /// the table is from when it was empty, or is nothing. It adds rows of which there are never any.
    pub fn since(&self, rows: u64) -> String {
        let changes = self.changes();
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|column| quoted(&column.name))
            .collect();
        let nulls = names
            .iter()
            .map(|name| format!("(NULL::{changes}).{name}, "));
        format!(
            "(SELECT {list}{WEIGHT} FROM {changes} WHERE NOT pg_visible_in_snapshot({TRANSACTION}, {FRONTIER}) \
             UNION ALL SELECT {nulls}0 FROM generate_series(1, {rows}) WHERE {FRONTIER} IS NULL) AS egret_since",
            list = names
                .iter()
                .map(|name| format!("{name}, "))
                .collect::<String>(),
            nulls = nulls.collect::<String>(),
        )
    }

    /// The rows of transition tables with their weights, in parentheses.
    pub fn in_transition(&self, sources: &[(&str, &str)]) -> String {
        let names: String = self
            .columns
            .iter()
            .map(|column| format!("{}, ", quoted(&column.name)))
            .collect();
        let selects = sources
            .iter()
            .map(|(table, weight)| format!("SELECT {names}{weight} AS {WEIGHT} FROM {table}"));
        format!("({})", selects.collect::<Vec<_>>().join(" UNION ALL "))
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
    pub fn fits(&self, table: &str) -> String {
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

    /// The functions that triggers call, with their arguments' types.
    pub fn functions(&self) -> Vec<String> {
        let before = self.of.map(|view| format!("{}()", before(view)));
        let after = format!("{}()", self.function());
        before.into_iter().chain([after]).collect()
    }

    /// How many triggers a table has.
    pub fn trigger_count(&self) -> i64 {
        (EVENTS.len() * self.functions().len()) as i64
    }

    /// Whether an UPDATE left the columns as they were, byte by byte. Both transition tables have their rows in one order; where they had
    /// not, rows would differ and nothing would be left out. The first two tell most statements apart, and FULL is never a loop in a loop.
    pub fn untouched(&self) -> String {
        let columns = self.columns.iter();
        let list: Vec<String> = columns
            .map(|column| format!("r.{}", quoted(&column.name)))
            .collect();
        let row = format!("ROW({})", list.join(", "));
        let first =
            |table: &str| format!("(SELECT {row} FROM {} LIMIT 1)", self.with_fallback(table));
        let all = |table: &str| {
            format!(
                "(SELECT pg_catalog.row_number() OVER () AS place, {row} AS kept FROM {})",
                self.with_fallback(table)
            )
        };
        format!(
            "{} OPERATOR(pg_catalog.*=) {} AND NOT EXISTS (SELECT FROM {} AS o FULL JOIN {} AS n USING (place) \
             WHERE (o.kept OPERATOR(pg_catalog.*=) n.kept) IS NOT TRUE)",
            first(OLD.0),
            first(NEW.0),
            all(OLD.0),
            all(NEW.0)
        )
    }

    /// The triggers of a table: when they fire and for what, their names, and what they call.
    fn triggers(&self) -> Vec<(&'static str, &'static str, String, String)> {
        let mut all = Vec::new();
        for event in EVENTS {
            let on = event.to_lowercase();
            if let Some(view) = self.of {
                // They fire in the order of their names: on every table views are locked in one order.
                let name = quoted(&format!("egret_before_{on}_{view:012}"));
                all.push(("BEFORE", event, name, before(view)));
            }
            let name = quoted(&format!("egret_{on}_{}", self.id));
            all.push(("AFTER", event, name, self.function()));
        }
        all
    }

    /// What makes the triggers on a table: on this one, or on one of its partitions.
    pub fn create_triggers(&self, on: &str) -> Vec<String> {
        let (old, new) = (OLD.0, NEW.0);
        let mut all = Vec::new();
        for (when, event, name, function) in self.triggers() {
            let rows = match (when, event) {
                ("AFTER", "INSERT") => format!("REFERENCING NEW TABLE AS {new}"),
                ("AFTER", "UPDATE") => format!("REFERENCING OLD TABLE AS {old} NEW TABLE AS {new}"),
                ("AFTER", "DELETE") => format!("REFERENCING OLD TABLE AS {old}"),
                _ => String::new(),
            };
            all.push(format!(
                "CREATE OR REPLACE TRIGGER {name} {when} {event} ON {on} {rows} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            ));
            all.push(format!("ALTER TABLE {on} ENABLE ALWAYS TRIGGER {name}"));
        }
        all
    }

    /// What drops them.
    pub fn drop_triggers(&self, on: &str) -> Vec<String> {
        let triggers = self.triggers().into_iter();
        let drop = triggers.map(|(_, _, name, _)| format!("DROP TRIGGER IF EXISTS {name} ON {on}"));
        drop.collect()
    }

    /// What makes the function that the triggers call, for them alone.
    pub fn create_functions(&self) -> Vec<String> {
        vec![
            self.create_function(),
            revoke(&format!("{}()", self.function())),
        ]
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

/// The function that is called before a statement changes what a view reads that is kept fresh within the transaction.
pub fn before(view: i64) -> String {
    format!("egret.before_{view}")
}

/// Keeps others from calling a function.
pub fn revoke(function: &str) -> String {
    format!("REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
}
