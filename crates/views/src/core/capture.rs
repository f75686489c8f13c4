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

use super::expression::quote_identifier;
use super::sql::{FRONTIER_SNAPSHOT, WEIGHT};

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
pub(crate) const OLD_ROWS: TransitionTable = TransitionTable { name: "egret_old", weight: "-1" };
/// Transition table of new rows.
pub(crate) const NEW_ROWS: TransitionTable = TransitionTable { name: "egret_new", weight: "1" };

/// Events that fire a trigger each.
const EVENTS: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "TRUNCATE"];

impl CapturedColumn {
    /// The column's definition in a table for changes.
    fn definition(&self) -> String {
        let (name, kind) = (quote_identifier(&self.name), &self.recorded_type);
        match &self.collation {
            Some(collation) => format!("{name} {kind} COLLATE {collation}"),
            None => format!("{name} {kind}"),
        }
    }

    /// The recorded value, cast to the column's own type.
    pub(crate) fn cast_recorded(&self, recorded: &str) -> String {
        if self.sql_type == self.recorded_type {
            recorded.to_owned()
        } else {
            format!("{recorded}::{}", self.sql_type)
        }
    }
}

impl Segment {
    /// The segment of a number in the catalogue.
    pub fn from_number(number: i16) -> Self {
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
pub(crate) fn changes_table(id: i64) -> String {
    format!("egret.changes_{id}")
}

/// Name of one segment; for the first, a query must say ONLY.
pub(crate) fn segment_table(id: i64, segment: Segment) -> String {
    match segment {
        Segment::First => changes_table(id),
        Segment::Second => format!("{}_second", changes_table(id)),
    }
}

/// Name of the function that the triggers of a table call.
fn trigger_function(id: i64) -> String {
    format!("egret.capture_{id}")
}

/// First words of the statement that creates a table for changes.
fn create_clause(is_unlogged: bool) -> &'static str {
    if is_unlogged { "CREATE UNLOGGED TABLE" } else { "CREATE TABLE" }
}

/// Storage settings of a table for changes.
const STORAGE_SETTINGS: &str = "WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, \
     autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)";

/// The index of a table for changes; it contains breaks only, so that finding one is cheap.
fn create_break_index(table: &str) -> String {
    format!("CREATE INDEX ON {table} ({TRANSACTION}) WHERE {WEIGHT} = 0")
}

/// The statements that create the second segment.
pub(crate) fn create_second_segment(id: i64, is_unlogged: bool) -> Vec<String> {
    let (first, second) = (segment_table(id, Segment::First), segment_table(id, Segment::Second));
    let create = create_clause(is_unlogged);
    vec![
        format!("{create} {second} () INHERITS ({first}) {STORAGE_SETTINGS}"),
        create_break_index(&second),
    ]
}

impl TableCapture {
    /// Name of the table for changes.
    pub(crate) fn changes_table(&self) -> String {
        changes_table(self.id)
    }

    /// Name of the function that the triggers call.
    pub(crate) fn trigger_function(&self) -> String {
        trigger_function(self.id)
    }

    /// The part that generates the trigger function.
    pub fn recorder(&self) -> Recorder {
        let columns = self.columns.iter();
        Recorder {
            id: self.id,
            columns: columns.map(|column| (column.name.clone(), column.type_oid)).collect(),
        }
    }

    /// The statements that create the table for changes. That of a view in mode immediate is
    /// unlogged: its rows do not outlive the transaction, so a crash loses nothing.
    pub(crate) fn create_changes_table(&self, capture_options: CaptureOptions) -> Vec<String> {
        let create = create_clause(capture_options.is_unlogged || self.view.is_some());
        let columns: String =
            self.columns.iter().map(|column| format!(", {}", column.definition())).collect();
        let table = self.changes_table();
        vec![
            format!(
                "{create} {table} ({TRANSACTION} xid8 NOT NULL, {WEIGHT} smallint NOT NULL{columns}) {STORAGE_SETTINGS}"
            ),
            create_break_index(&table),
        ]
    }

    /// Query of changes with the types that the columns have in the table; `from` follows FROM.
    pub(crate) fn select_recorded(&self, from: &str) -> String {
        let columns = self.columns.iter();
        let list: String = columns
            .map(|column| {
                let name = quote_identifier(&column.name);
                format!("{} AS {name}, ", column.cast_recorded(&name))
            })
            .collect();
        // A sum over integers is a bigint; over bigints it would be a numeric.
        format!("SELECT {list}{WEIGHT}::integer AS {WEIGHT} FROM {from}")
    }

    /// The changes with equal rows merged: their weights are added, and those of weight 0 left out.
    pub(crate) fn select_consolidated(&self, from: &str) -> String {
        let mut list = Vec::new();
        let mut keys = Vec::new();
        for column in &self.columns {
            let name = quote_identifier(&column.name);
            if column.is_exact {
                list.push(format!("{} AS {name}", column.cast_recorded(&name)));
                keys.push(name);
            } else {
                keys.push(format!("{name}::text COLLATE \"C\""));
                let any = format!("any_value({name})");
                list.push(format!("{} AS {name}", column.cast_recorded(&any)));
            }
        }
        list.push(format!("sum({WEIGHT})::bigint AS {WEIGHT}"));
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
        format!("SELECT {} FROM {from}{group} HAVING sum({WEIGHT}) <> 0", list.join(", "))
    }

    /// Subquery of the changes that the view's snapshot does not see. The planner has no useful
    /// statistics of the table, so the subquery adds `rows` rows that never appear: it is planned
    /// for about as many.
    pub(crate) fn select_unapplied(&self, rows: u64) -> String {
        let changes = self.changes_table();
        let names: Vec<String> =
            self.columns.iter().map(|column| quote_identifier(&column.name)).collect();
        let nulls = names.iter().map(|name| format!("(NULL::{changes}).{name}, "));
        format!(
            "(SELECT {list}{WEIGHT} FROM {changes} WHERE NOT pg_visible_in_snapshot({TRANSACTION}, {FRONTIER_SNAPSHOT}) \
             UNION ALL SELECT {nulls}0 FROM generate_series(1, {rows}) WHERE {FRONTIER_SNAPSHOT} IS NULL) AS egret_since",
            list = names.iter().map(|name| format!("{name}, ")).collect::<String>(),
            nulls = nulls.collect::<String>(),
        )
    }

    /// The rows of transition tables with their weights, in parentheses.
    pub(crate) fn select_transition_rows(&self, sources: &[TransitionTable]) -> String {
        let names: String = self
            .columns
            .iter()
            .map(|column| format!("{}, ", quote_identifier(&column.name)))
            .collect();
        let selects = sources.iter().map(|TransitionTable { name, weight }| {
            format!("SELECT {names}{weight} AS {WEIGHT} FROM {name}")
        });
        format!("({})", selects.collect::<Vec<_>>().join(" UNION ALL "))
    }

    /// The trigger functions with their argument types.
    pub(crate) fn function_signatures(&self) -> Vec<String> {
        let before = self.view.map(|view| format!("{}()", before_function(view)));
        let after = format!("{}()", self.trigger_function());
        before.into_iter().chain([after]).collect()
    }

    /// Number of triggers on a table.
    pub(crate) fn trigger_count(&self) -> i64 {
        (EVENTS.len() * self.function_signatures().len()) as i64
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
            let event_name = event.to_lowercase();
            if let Some(view) = self.view {
                // Triggers fire in the order of their names: so views are locked in the same order
                // on every table.
                let name = format!("egret_before_{event_name}_{view:012}");
                all.push(("BEFORE", event, name, before_function(view)));
            }
            let name = format!("egret_{event_name}_{}", self.id);
            all.push(("AFTER", event, name, self.trigger_function()));
        }
        all
    }

    /// The statements that create the triggers on a table or on one of its partitions. If the role
    /// `may_alter` the table they fire in every session; otherwise they do not fire where
    /// `session_replication_role` is `replica`.
    pub(crate) fn create_triggers(&self, table: &str, may_alter: bool) -> Vec<String> {
        let (old, new) = (OLD_ROWS.name, NEW_ROWS.name);
        let mut statements = Vec::new();
        for (when, event, name, function) in self.triggers() {
            let name = quote_identifier(&name);
            let rows = match (when, event) {
                ("AFTER", "INSERT") => format!("REFERENCING NEW TABLE AS {new}"),
                ("AFTER", "UPDATE") => format!("REFERENCING OLD TABLE AS {old} NEW TABLE AS {new}"),
                ("AFTER", "DELETE") => format!("REFERENCING OLD TABLE AS {old}"),
                _ => String::new(),
            };
            statements.push(format!(
                "CREATE OR REPLACE TRIGGER {name} {when} {event} ON {table} {rows} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
            ));
            if may_alter {
                statements.push(format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"));
            }
        }
        statements
    }

    pub(crate) fn drop_triggers(&self, table: &str) -> Vec<String> {
        let triggers = self.triggers().into_iter();
        let drop = triggers.map(|(_, _, name, _)| {
            format!("DROP TRIGGER IF EXISTS {} ON {table}", quote_identifier(&name))
        });
        drop.collect()
    }

    /// The statements that create the trigger function, which no other role may call.
    pub(crate) fn create_functions(&self, capture_options: CaptureOptions) -> Vec<String> {
        let recorder = self.recorder();
        vec![
            recorder.create_function(Segment::First, capture_options.size_max),
            revoke_execute(&format!("{}()", self.trigger_function())),
        ]
    }

    /// The statement that stops recording a column.
    pub(crate) fn drop_column(&self, column: &CapturedColumn) -> String {
        let (table, name) = (self.changes_table(), quote_identifier(&column.name));
        format!("ALTER TABLE {table} DROP COLUMN {name}")
    }

    /// The statement that starts recording one more column.
    pub(crate) fn add_column(&self, column: &CapturedColumn) -> String {
        format!("ALTER TABLE {} ADD COLUMN {}", self.changes_table(), column.definition())
    }
}

/// Name of the function that a view in mode immediate has called before each statement on its
/// tables.
pub(crate) fn before_function(view: i64) -> String {
    format!("egret.before_{view}")
}

/// Takes the right to call a function from PUBLIC.
pub(crate) fn revoke_execute(function: &str) -> String {
    format!("REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
}

/// Changes as a common table expression. Consolidated ones are materialized: otherwise the planner
/// may evaluate conditions for rows before opposite ones have cancelled out.
pub(crate) fn changes_cte(name: &str, changes: &str, is_consolidated: bool) -> String {
    if is_consolidated {
        format!("{name} AS MATERIALIZED ({changes})")
    } else {
        format!("{name} AS ({changes})")
    }
}
