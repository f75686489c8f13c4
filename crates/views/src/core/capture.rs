//! SQL that records the changes of a table: a table for changes, and triggers that fill it.
//!
//! A trigger fires once for a statement and copies what it changed, from the transition tables,
//! with the id of the transaction and a weight. Nothing that happens to the table may make the
//! user's statement fail: a dropped column is recorded as null, and a changed type is detected
//! before anything is read as the old type. Such a change, and anything else that rows cannot
//! describe, is recorded as a row with weight 0, a *break*: views that read the table are
//! recomputed.
//!
//! For tables with many writes there are two tables for changes, *segments*. The second inherits
//! from the first, so that a query of the first reads both. One is written to; the other is
//! truncated when every view has applied its rows, and then the two switch roles.

mod recorder;

pub use recorder::Recorder;

use super::expression::quoted;
use super::sql::{FRONTIER, WEIGHT};

/// The column with the id of the transaction that changed a row.
pub(crate) const TRANSACTION: &str = "egret_xid";

/// How changes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Changes of one table are not recorded beyond this size, in bytes.
    pub size_max: u64,
    /// Size in bytes beyond which changes of a table are recorded in two segments.
    pub segment_size: u64,
    /// Whether new tables for changes are unlogged.
    pub is_unlogged: bool,
}

/// A table whose changes are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableCapture {
    /// Number of the capture, by which its table and function are named.
    pub id: i64,
    /// The columns that views need.
    pub columns: Vec<CapturedColumn>,
    /// The view in mode immediate that applies the changes within the transaction; none: all views
    /// read them.
    pub view: Option<i64>,
}

/// A column whose values are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedColumn {
    /// Name of the column, not quoted.
    pub name: String,
    /// Type without modifiers, so that a change of the modifiers neither alters nor refuses a
    /// value.
    pub sql_type: String,
    /// Type in the table for changes: of a domain its base type, which always accepts nulls.
    pub recorded_type: String,
    /// Collation, if it differs from that of the recorded type.
    pub collation: Option<String>,
    /// The oid of its type.
    pub type_oid: u32,
    /// Whether equal values look the same: `1.0` and `1.00` do not.
    pub is_exact: bool,
}

/// One of the two tables in which the changes of a table are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The table for changes itself, which always exists.
    First,
    /// The second table, for tables with many writes.
    Second,
}

/// A transition table of the triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitionTable {
    /// Name of the table within the trigger functions.
    pub name: &'static str,
    /// Weight of each of its rows, as SQL.
    pub weight: &'static str,
}

/// Transition table of old rows.
pub const OLD: TransitionTable = TransitionTable {
    name: "egret_old",
    weight: "-1",
};
/// Transition table of new rows.
pub const NEW: TransitionTable = TransitionTable {
    name: "egret_new",
    weight: "1",
};

/// Events that fire a trigger each.
const EVENTS: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "TRUNCATE"];

impl CapturedColumn {
    /// The column's definition in a table for changes.
    fn declared(&self) -> String {
        let (name, kind) = (quoted(&self.name), &self.recorded_type);
        match &self.collation {
            Some(collation) => format!("{name} {kind} COLLATE {collation}"),
            None => format!("{name} {kind}"),
        }
    }

    /// The recorded value, cast to the column's own type.
    pub fn read(&self, recorded: &str) -> String {
        if self.sql_type == self.recorded_type {
            recorded.to_owned()
        } else {
            format!("{recorded}::{}", self.sql_type)
        }
    }
}

impl Segment {
    /// The segment of a number in the catalogue.
    pub fn numbered(number: i16) -> Self {
        match number {
            2 => Self::Second,
            _ => Self::First,
        }
    }

    /// The number of the segment in the catalogue: 1 or 2.
    pub fn number(self) -> i16 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    /// The segment that it switches roles with.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Name of the table for changes; a query of it reads both segments.
pub fn changes(id: i64) -> String {
    format!("egret.changes_{id}")
}

/// Name of one segment; for the first, a query must say ONLY.
pub fn segment(id: i64, segment: Segment) -> String {
    match segment {
        Segment::First => changes(id),
        Segment::Second => format!("{}_second", changes(id)),
    }
}

/// Name of the function that the triggers of a table call.
fn function(id: i64) -> String {
    format!("egret.capture_{id}")
}

/// First words of the statement that creates a table for changes.
fn create(is_unlogged: bool) -> &'static str {
    if is_unlogged {
        "CREATE UNLOGGED TABLE"
    } else {
        "CREATE TABLE"
    }
}

/// Storage settings of a table for changes.
const SETTINGS: &str = "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, \
     autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)";

/// The index of a table for changes; it contains breaks only, so that finding one is cheap.
fn index(table: &str) -> String {
    format!("CREATE INDEX ON {table} ({TRANSACTION}) WHERE {WEIGHT} = 0")
}

/// The statements that create the second segment.
pub(crate) fn create_second(id: i64, is_unlogged: bool) -> Vec<String> {
    let (first, second) = (segment(id, Segment::First), segment(id, Segment::Second));
    let create = create(is_unlogged);
    vec![
        format!("{create} {second} () INHERITS ({first}) {SETTINGS}"),
        index(&second),
    ]
}

impl TableCapture {
    /// Name of the table for changes.
    pub fn changes(&self) -> String {
        changes(self.id)
    }

    /// Name of the function that the triggers call.
    pub fn function(&self) -> String {
        function(self.id)
    }

    /// The part that generates the trigger function.
    pub fn recorder(&self) -> Recorder {
        let columns = self.columns.iter();
        Recorder {
            id: self.id,
            columns: columns
                .map(|column| (column.name.clone(), column.type_oid))
                .collect(),
        }
    }

    /// The statements that create the table for changes. That of a view in mode immediate is
    /// unlogged: its rows do not outlive the transaction, so a crash loses nothing.
    pub(crate) fn create_changes(&self, recording: CaptureOptions) -> Vec<String> {
        let create = create(recording.is_unlogged || self.view.is_some());
        let columns: String = self
            .columns
            .iter()
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

    /// Query of changes with the types that the columns have in the table; `from` follows FROM.
    pub(crate) fn as_recorded(&self, from: &str) -> String {
        let columns = self.columns.iter();
        let list: String = columns
            .map(|column| {
                let name = quoted(&column.name);
                format!("{} AS {name}, ", column.read(&name))
            })
            .collect();
        // A sum over integers is a bigint; over bigints it would be a numeric.
        format!("SELECT {list}{WEIGHT}::integer AS {WEIGHT} FROM {from}")
    }

    /// The changes with equal rows merged: their weights are added, and those of weight 0 left out.
    pub(crate) fn consolidated(&self, from: &str) -> String {
        let mut list = Vec::new();
        let mut keys = Vec::new();
        for column in &self.columns {
            let name = quoted(&column.name);
            if column.is_exact {
                list.push(format!("{} AS {name}", column.read(&name)));
                keys.push(name);
            } else {
                keys.push(format!("{name}::text COLLATE \"C\""));
                let any = format!("any_value({name})");
                list.push(format!("{} AS {name}", column.read(&any)));
            }
        }
        list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
        let group = if keys.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {}", keys.join(", "))
        };
        format!(
            "SELECT {} FROM {from}{group} HAVING sum({WEIGHT}) <> 0",
            list.join(", ")
        )
    }

    /// Subquery of the changes that the view's snapshot does not see. The planner has no useful
    /// statistics of the table, so the subquery adds `rows` rows that never appear: it is planned
    /// for about as many.
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
    pub(crate) fn in_transition(&self, sources: &[TransitionTable]) -> String {
        let names: String = self
            .columns
            .iter()
            .map(|column| format!("{}, ", quoted(&column.name)))
            .collect();
        let selects = sources.iter().map(|TransitionTable { name, weight }| {
            format!("SELECT {names}{weight} AS {WEIGHT} FROM {name}")
        });
        format!("({})", selects.collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// The trigger functions with their argument types.
    pub fn functions(&self) -> Vec<String> {
        let before = self.view.map(|view| format!("{}()", before(view)));
        let after = format!("{}()", self.function());
        before.into_iter().chain([after]).collect()
    }

    /// Number of triggers on a table.
    pub(crate) fn trigger_count(&self) -> i64 {
        (EVENTS.len() * self.functions().len()) as i64
    }

    /// Names of the triggers on a table, not quoted.
    pub(crate) fn trigger_names(&self) -> Vec<String> {
        let triggers = self.triggers().into_iter();
        triggers.map(|(_, _, name, _)| name).collect()
    }

    /// The triggers of a table: timing, event, name and function.
    fn triggers(&self) -> Vec<(&'static str, &'static str, String, String)> {
        let mut all = Vec::new();
        for event in EVENTS {
            let on = event.to_lowercase();
            if let Some(view) = self.view {
                // Triggers fire in the order of their names: so views are locked in the same order
                // on every table.
                let name = format!("egret_before_{on}_{view:012}");
                all.push(("BEFORE", event, name, before(view)));
            }
            let name = format!("egret_{on}_{}", self.id);
            all.push(("AFTER", event, name, self.function()));
        }
        all
    }

    /// The statements that create the triggers on a table or on one of its partitions. If the role
    /// `may_alter` the table they fire in every session; otherwise they do not fire where
    /// `session_replication_role` is `replica`.
    pub(crate) fn create_triggers(&self, on: &str, may_alter: bool) -> Vec<String> {
        let (old, new) = (OLD.name, NEW.name);
        let mut all = Vec::new();
        for (when, event, name, function) in self.triggers() {
            let name = quoted(&name);
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

    pub(crate) fn drop_triggers(&self, on: &str) -> Vec<String> {
        let triggers = self.triggers().into_iter();
        let drop = triggers
            .map(|(_, _, name, _)| format!("DROP TRIGGER IF EXISTS {} ON {on}", quoted(&name)));
        drop.collect()
    }

    /// The statements that create the trigger function, which no other role may call.
    pub(crate) fn create_functions(&self, recording: CaptureOptions) -> Vec<String> {
        let recorder = self.recorder();
        vec![
            recorder.create_function(Segment::First, recording.size_max),
            revoke(&format!("{}()", self.function())),
        ]
    }

    /// The statement that stops recording a column.
    pub(crate) fn drop_column(&self, column: &CapturedColumn) -> String {
        let (table, name) = (self.changes(), quoted(&column.name));
        format!("ALTER TABLE {table} DROP COLUMN {name}")
    }

    /// The statement that starts recording one more column.
    pub(crate) fn add_column(&self, column: &CapturedColumn) -> String {
        format!(
            "ALTER TABLE {} ADD COLUMN {}",
            self.changes(),
            column.declared()
        )
    }
}

/// Name of the function that a view in mode immediate has called before each statement on its
/// tables.
pub fn before(view: i64) -> String {
    format!("egret.before_{view}")
}

/// Takes the right to call a function from PUBLIC.
pub fn revoke(function: &str) -> String {
    format!("REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
}

/// Changes as a common table expression. Consolidated ones are materialized: otherwise the planner
/// may evaluate conditions for rows before opposite ones have cancelled out.
pub(crate) fn changes_as(name: &str, changes: &str, is_consolidated: bool) -> String {
    if is_consolidated {
        format!("{name} AS MATERIALIZED ({changes})")
    } else {
        format!("{name} AS ({changes})")
    }
}
