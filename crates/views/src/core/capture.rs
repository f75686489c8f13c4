//! The SQL that records what changes in a table: a table for changes, and triggers that fill it.
//!
//! A trigger fires once for a statement and copies what it changed, from the transition tables, with the id of the
//! transaction and a weight. Nothing that happens to the table may make the user's statement fail: a column that was dropped is
//! null in what is recorded, and one that has another type is noticed before anything is read as the old type. Such a change,
//! and anything else that cannot be said by rows, is recorded as a row with weight 0, a *break*: views that read the table are
//! computed anew.
//!
//! Where much is written there are two such tables, *segments*: the second inherits from the first, so that whoever reads the first
//! reads both. One is written to; the other is truncated when every view has seen all that is in it, and then they change over.

mod recorder;

pub use recorder::Recorder;

use super::expression::quoted;
use super::sql::{FRONTIER, WEIGHT};

/// The column with the id of the transaction that changed a row.
pub const TRANSACTION: &str = "egret_xid";

/// How changes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Changes of one table that take more bytes are not recorded any more.
    pub size_max: u64,
    /// Where they take more they are recorded in two segments.
    pub segment_size: u64,
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

/// One of the tables that changes of a table are recorded in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The one that is always there.
    First,
    /// The one that is made where much is written.
    Second,
}

/// What a change comes from: the transition table and the weight of its rows.
pub const OLD: (&str, &str) = ("egret_old", "-1");
/// The same.
pub const NEW: (&str, &str) = ("egret_new", "1");

/// The names of triggers that [`Captured::create_triggers`] makes, as a regular expression of PostgreSQL.
pub const OWN_TRIGGER: &str = "^egret_(before_)?(insert|update|delete|truncate)_[0-9]+$";

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

impl Segment {
    /// The one with a number, as it is remembered.
    pub fn numbered(number: i16) -> Self {
        match number {
            2 => Self::Second,
            _ => Self::First,
        }
    }

    /// Its number.
    pub fn number(self) -> i16 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    /// The one that it changes over with.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// The table for changes, with both segments where there are two.
pub fn changes(id: i64) -> String {
    format!("egret.changes_{id}")
}

/// A segment: for the first ONLY is to be said.
pub fn segment(id: i64, segment: Segment) -> String {
    match segment {
        Segment::First => changes(id),
        Segment::Second => format!("{}_second", changes(id)),
    }
}

/// The function that the triggers of a table call.
fn function(id: i64) -> String {
    format!("egret.capture_{id}")
}

/// What begins to make a table for changes, …
fn create(is_unlogged: bool) -> &'static str {
    match is_unlogged {
        true => "CREATE UNLOGGED TABLE",
        false => "CREATE TABLE",
    }
}

/// … its settings, …
const SETTINGS: &str = "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, \
     autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)";

/// … and its index, which is empty but for breaks: it tells cheaply whether there is one.
fn index(table: &str) -> String {
    format!("CREATE INDEX ON {table} ({TRANSACTION}) WHERE {WEIGHT} = 0")
}

/// What makes the second segment.
pub fn create_second(id: i64, is_unlogged: bool) -> Vec<String> {
    let (first, second) = (segment(id, Segment::First), segment(id, Segment::Second));
    let create = create(is_unlogged);
    vec![
        format!("{create} {second} () INHERITS ({first}) {SETTINGS}"),
        index(&second),
    ]
}

impl Captured {
    /// The table for changes.
    pub fn changes(&self) -> String {
        changes(self.id)
    }

    /// The function that the triggers call.
    pub fn function(&self) -> String {
        function(self.id)
    }

    /// What records these columns.
    pub fn recorder(&self) -> Recorder {
        let columns = self.columns.iter();
        Recorder {
            id: self.id,
            columns: columns
                .map(|column| (column.name.clone(), column.type_oid))
                .collect(),
        }
    }

    /// What makes the table for changes. What one view alone reads is of no use after the transaction, so that no crash can take it away.
    pub fn create_changes(&self, recording: Recording) -> Vec<String> {
        let create = create(recording.is_unlogged || self.of.is_some());
        let columns = self.columns.iter();
        let columns: String = columns
            .map(|column| format!(", {}", column.declared()))
            .collect();
        let table = self.changes();
        vec![
            format!(
                "{create} {table} ({TRANSACTION} xid8 NOT NULL, {WEIGHT} smallint NOT NULL{columns}) {SETTINGS}"
            ),
            index(&table),
        ]
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

    /// What makes the triggers on a table: on this one, or on one of its partitions. Who `may_alter` the table has them fire
    /// in every session; otherwise they do not fire where `session_replication_role` is `replica`.
    pub fn create_triggers(&self, on: &str, may_alter: bool) -> Vec<String> {
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
            if may_alter {
                all.push(format!("ALTER TABLE {on} ENABLE ALWAYS TRIGGER {name}"));
            }
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
    pub fn create_functions(&self, recording: Recording) -> Vec<String> {
        let recorder = self.recorder();
        vec![
            recorder.create_function(Segment::First, recording.size_max),
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
