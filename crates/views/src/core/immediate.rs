//! Views in mode immediate: the trigger functions that refresh them within the writing transaction.
//!
//! Before a statement changes anything its transaction locks the view until it ends: of two
//! concurrent writers on both sides of a join, each would miss the changes of the other. The lock
//! is on a table of its own, which users may not lock. After the statement the changes in the
//! transition tables are applied to the view. A full refresh takes the same lock. A suspended view
//! is skipped; before it is resumed, all writers are waited for.
//!
//! One statement may change several tables, itself or by cascades and by triggers of the user, and
//! each table is read as all of them have left it. So open statements are counted, in
//! `egret.view_statement`: while there are others, changes are only recorded, and the last
//! statement applies all of them. The count is a table, so that a savepoint rolls it back with the
//! changes. Each step is a row of its own, as a row that is updated many times within a transaction
//! becomes ever slower to find. The next transaction removes these rows.
//!
//! An error in the view does not fail the user's statement: the view is marked, and Egret
//! recomputes it. So does a statement that finds the view unmaintained (`egret.view_is_live`):
//! claimed to be recomputed, or its tables altered in a way that fires no trigger. The function
//! `egret.require_live_view` refuses reads of such a view, in every transaction.

use postgres_protocol::escape::escape_literal;

use super::capture::{
    NEW_ROWS, OLD_ROWS, Segment, TRANSACTION, TableCapture, TransitionTable, before_function,
    revoke_execute,
};
use super::sql::WEIGHT;

/// Statements that refresh a view, in order.
#[derive(Clone, Debug, Default)]
pub struct RefreshStatements {
    /// SQL statements; each returns one row of counts.
    pub statements: Vec<String>,
    /// Tables with changes of stages, to be emptied afterwards.
    pub sinks: Vec<String>,
}

/// A table that a view in mode immediate reads.
#[derive(Clone, Debug)]
pub struct ImmediateSource {
    /// The recorded columns of the table.
    pub capture: TableCapture,
    /// Statements that apply the transition tables of an INSERT, an UPDATE and a DELETE.
    pub transition_statements: [RefreshStatements; 3],
}

/// Definition of a view in mode immediate, from which its trigger functions are generated.
#[derive(Clone, Debug)]
pub struct Immediate {
    /// Number of the view.
    pub view: i64,
    /// Name of the view, for messages.
    pub name: String,
    /// The tables that the view reads.
    pub tables: Vec<ImmediateSource>,
    /// Applies the recorded changes of all tables.
    pub apply: RefreshStatements,
    /// Recomputes the view from its query.
    pub rebuild: RefreshStatements,
    /// Settings with which its expressions are computed: names, and values as SQL.
    pub settings: Vec<(String, String)>,
}

/// Statements with more rows than this are planned anew; with fewer they keep their cached plan.
const CACHED_PLAN_ROWS_MAX: u32 = 1_000;

/// Transition tables of the three kinds of statements, in the order of `direct`.
pub(crate) const TRANSITION_TABLES: [&[TransitionTable]; 3] =
    [&[NEW_ROWS], &[OLD_ROWS, NEW_ROWS], &[OLD_ROWS]];

/// Condition that the view has been maintained and is not about to be recomputed: the stamp then
/// has more than the place. A view for which it is false is only locked, so that a full refresh
/// waits.
/// Before a statement `egret.view_is_live` is asked, which also looks into the catalogue.
fn live_condition(view: i64) -> String {
    format!(
        "coalesce((SELECT kept.snapshot IS NOT NULL AND strpos(kept.stamp, ';') > 0 \
         FROM egret.view AS kept WHERE kept.id = {view}), false)"
    )
}

/// Name of the table by which writers lock a view.
pub fn lock_table(view: i64) -> String {
    format!("egret.lock_{view}")
}

/// The changes that this transaction has recorded and not applied.
fn own_changes(changes: &str) -> String {
    format!("{changes} WHERE {TRANSACTION} = pg_current_xact_id()")
}

impl RefreshStatements {
    /// The statements as PL/pgSQL, in a function with a variable `egret_done`.
    fn to_plpgsql(&self, render: impl Fn(&str) -> String) -> String {
        let statements = self.statements.iter().map(|sql| {
            format!(
                "{};\nIF egret_done.wrong > 0 THEN\nRAISE EXCEPTION 'the stored state of the \
                 view does not match the changes';\nELSIF egret_done.wrong < 0 THEN\nRAISE \
                 EXCEPTION 'the changes lead to too many rows';\nEND IF;\n",
                render(sql)
            )
        });
        let sinks = self.sinks.iter().map(|sink| format!("DELETE FROM {sink};\n"));
        statements.chain(sinks).collect()
    }

    fn with_cached_plans(&self) -> String {
        self.to_plpgsql(|sql| format!("{sql} INTO egret_done"))
    }

    fn with_fresh_plans(&self) -> String {
        self.to_plpgsql(|sql| format!("EXECUTE {} INTO egret_done", escape_literal(sql)))
    }
}

impl Immediate {
    /// The statements that create the lock table and the functions.
    pub(crate) fn create_functions(&self) -> Vec<String> {
        let mut statements = vec![
            format!("CREATE TABLE IF NOT EXISTS {} ()", lock_table(self.view)),
            self.before_function(),
            self.fail_function(),
            self.catch_up_function(),
        ];
        statements.extend(self.tables.iter().map(|table| self.after_function(table)));
        statements
            .extend(function_signatures(self.view).iter().map(|function| revoke_execute(function)));
        statements.extend(
            self.tables
                .iter()
                .map(|table| revoke_execute(&format!("{}()", table.capture.trigger_function()))),
        );
        statements
    }

    /// Reads the last step of this transaction into `egret_open` and `egret_pending`.
    fn read_last_step(&self) -> String {
        format!(
            "SELECT step.open, step.has_pending INTO egret_open, egret_pending FROM egret.view_statement AS step \
             WHERE step.view = {} AND step.xid = pg_current_xact_id() ORDER BY step.id DESC LIMIT 1;\n",
            self.view
        )
    }

    fn insert_step(&self, open: &str, has_pending: &str) -> String {
        format!(
            "INSERT INTO egret.view_statement (view, xid, open, has_pending) \
             VALUES ({}, pg_current_xact_id(), {open}, {has_pending});\n",
            self.view
        )
    }

    fn before_function(&self) -> String {
        let view = self.view;
        let message = format!(
            "view {} is refreshed within the transactions that write to its tables, which must \
             be READ COMMITTED",
            self.name
        );
        let body = format!(
            "DECLARE\negret_open integer;\negret_pending boolean;\n\
             BEGIN\n\
             IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN\n\
             RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = {message},\n\
             HINT = 'Write in a READ COMMITTED transaction, or give the view another mode.';\n\
             END IF;\n\
             IF EXISTS (SELECT FROM egret.view AS kept WHERE kept.id = {view} AND kept.state = 'suspended') THEN\n\
             RETURN NULL;\n\
             END IF;\n\
             LOCK TABLE {lock_table} IN EXCLUSIVE MODE;\n\
             IF NOT egret.view_is_live({view}) THEN\n{unmaintained}RETURN NULL;\nEND IF;\n\
             {last}\
             IF NOT FOUND THEN\n\
             DELETE FROM egret.view_statement AS step WHERE step.ctid = ANY (ARRAY( \
             SELECT gone.ctid FROM egret.view_statement AS gone WHERE gone.view = {view} AND gone.xid = \
             (SELECT done.xid FROM egret.view_statement AS done WHERE done.view = {view} ORDER BY done.xid DESC LIMIT 1) \
             FOR UPDATE SKIP LOCKED));\n\
             END IF;\n\
             {step}\
             RETURN NULL;\n\
             END",
            message = escape_literal(&message),
            lock_table = lock_table(view),
            unmaintained = self.note_unmaintained(),
            last = self.read_last_step(),
            step =
                self.insert_step("coalesce(egret_open, 0) + 1", "coalesce(egret_pending, false)"),
        );
        create_function(&format!("{}() RETURNS trigger", before_function(view)), &body)
    }

    /// Has a view that was maintained until its tables were altered recomputed, even if the
    /// alteration is taken back: what this transaction writes is not applied to the view.
    fn note_unmaintained(&self) -> String {
        format!(
            "UPDATE egret.view SET snapshot = NULL, state = CASE state WHEN 'active' THEN 'new' ELSE state END, \
             reason = 'a table that it reads was altered or restored' WHERE id = {} AND snapshot IS NOT NULL AND strpos(stamp, ';') > 0;\n",
            self.view
        )
    }

    /// The trigger function after a statement. Settings are applied where errors are caught: one
    /// that has become invalid must not fail the statement.
    fn after_function(&self, table: &ImmediateSource) -> String {
        let capture = &table.capture;
        let events = ["INSERT", "UPDATE", "DELETE"]
            .iter()
            .zip(&table.transition_statements)
            .zip(TRANSITION_TABLES);
        let event_branches: String = events
            .map(|((event, statements), sources)| {
                self.event_branch(capture, event, statements, sources)
            })
            .collect();
        let body = format!(
            "DECLARE\negret_open integer;\negret_pending boolean;\negret_done record;\negret_why text;\negret_settings text[];\n\
             BEGIN\n\
             {last}\
             egret_open := egret_open - 1;\n\
             IF {live_condition} THEN\n\
             BEGIN\n\
             IF egret_open IS NULL THEN\nRAISE EXCEPTION 'the trigger before the statement did not run';\nEND IF;\n\
             {set}\
             CASE TG_OP\n{event_branches}\
             ELSE\n{insert_break}\
             END CASE;\n\
             IF egret_open = 0 AND egret_pending THEN\nPERFORM {catch_up_name}();\negret_pending := false;\nEND IF;\n\
             {reset}\
             EXCEPTION\n\
             WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN\nRAISE;\n\
             WHEN OTHERS THEN\n\
             GET STACKED DIAGNOSTICS egret_why = MESSAGE_TEXT;\n\
             PERFORM {fail_name}(egret_why);\negret_pending := false;\n\
             END;\n\
             ELSIF egret_pending THEN\n{forget}egret_pending := false;\n\
             END IF;\n\
             IF egret_open IS NOT NULL THEN\n{step}END IF;\n\
             RETURN NULL;\n\
             END",
            last = self.read_last_step(),
            live_condition = live_condition(self.view),
            set = self.apply_settings(),
            reset = self.restore_settings(),
            insert_break = insert_break(capture),
            catch_up_name = catch_up_name(self.view),
            fail_name = fail_name(self.view),
            forget = self.delete_own_changes(),
            step = self.insert_step("egret_open", "egret_pending AND egret_open > 0"),
        );
        create_function(&format!("{}() RETURNS trigger", capture.trigger_function()), &body)
    }

    /// Applies the settings of the view, and saves the session's own.
    fn apply_settings(&self) -> String {
        if self.settings.is_empty() {
            return String::new();
        }
        let names = self.settings.iter().map(|(name, _)| escape_literal(name));
        let saved_values: Vec<String> =
            names.map(|name| format!("current_setting({name})")).collect();
        let assignments: Vec<String> = self
            .settings
            .iter()
            .map(|(name, value)| format!("set_config({}, {value}, true)", escape_literal(name)))
            .collect();
        format!(
            "egret_settings := ARRAY[{}];\nPERFORM {};\n",
            saved_values.join(", "),
            assignments.join(", ")
        )
    }

    /// Restores the settings of the session.
    fn restore_settings(&self) -> String {
        if self.settings.is_empty() {
            return String::new();
        }
        let assignments = self.settings.iter().enumerate().map(|(index, (name, _))| {
            let (name, position) = (escape_literal(name), index + 1);
            format!("set_config({name}, egret_settings[{position}], true)")
        });
        format!("PERFORM {};\n", assignments.collect::<Vec<_>>().join(", "))
    }

    /// Deletes the changes that this transaction has recorded.
    fn delete_own_changes(&self) -> String {
        let changes = self.tables.iter().map(|table| table.capture.changes_table());
        changes.map(|changes| format!("DELETE FROM {};\n", own_changes(&changes))).collect()
    }

    fn event_branch(
        &self,
        capture: &TableCapture,
        event: &str,
        statements: &RefreshStatements,
        sources: &[TransitionTable],
    ) -> String {
        let table = sources[sources.len() - 1].name;
        let recorder = capture.recorder();
        format!(
            "WHEN '{event}' THEN\n\
             IF NOT EXISTS (SELECT FROM {table}) THEN\n\
             NULL;\n\
             ELSIF NOT {fits} THEN\n{insert_break}\
             {untouched}\
             ELSIF egret_open > 0 OR egret_pending THEN\n{record};\negret_pending := true;\n\
             ELSIF {many} THEN\n{each_time}\
             ELSE\n{once}END IF;\n",
            fits = recorder.types_match_condition(table),
            untouched = match event {
                "UPDATE" => format!("ELSIF {} THEN\nNULL;\n", recorder.unchanged_condition()),
                _ => String::new(),
            },
            insert_break = insert_break(capture),
            record = recorder.insert_statement(Segment::First, sources),
            many = many_rows_condition(&format!("SELECT FROM {table}")),
            each_time = statements.with_fresh_plans(),
            once = statements.with_cached_plans(),
        )
    }

    /// The function that applies all recorded changes.
    fn catch_up_function(&self) -> String {
        let changes: Vec<String> =
            self.tables.iter().map(|table| own_changes(&table.capture.changes_table())).collect();
        let break_conditions: Vec<String> = changes
            .iter()
            .map(|own_changes| format!("EXISTS (SELECT FROM {own_changes} AND {WEIGHT} = 0)"))
            .collect();
        let rows: Vec<String> = changes.iter().map(|own| format!("SELECT FROM {own}")).collect();
        let body = format!(
            "DECLARE\negret_done record;\n\
             BEGIN\n\
             IF {break_conditions} THEN\n{rebuild}\
             ELSIF {many} THEN\n{each_time}\
             ELSE\n{once}END IF;\n\
             {forget}\
             END",
            break_conditions = break_conditions.join(" OR "),
            rebuild = self.rebuild.with_fresh_plans(),
            many = many_rows_condition(&rows.join(" UNION ALL ")),
            each_time = self.apply.with_fresh_plans(),
            once = self.apply.with_cached_plans(),
            forget = self.delete_own_changes(),
        );
        create_function(&format!("{}() RETURNS void", catch_up_name(self.view)), &body)
    }

    /// The function that marks the view as failed.
    fn fail_function(&self) -> String {
        let body = format!(
            "BEGIN\n\
             {}\
             UPDATE egret.view SET snapshot = NULL, reason = why, \
             state = CASE state WHEN 'active' THEN 'failing' ELSE state END WHERE id = {};\n\
             END",
            self.delete_own_changes(),
            self.view
        );
        create_function(&format!("{}(why text) RETURNS void", fail_name(self.view)), &body)
    }
}

/// Condition that a query has more rows than statements keep their plan for.
fn many_rows_condition(query: &str) -> String {
    format!(
        "(SELECT count(*) FROM ({query} LIMIT {CACHED_PLAN_ROWS_MAX} + 1) AS counted) > {CACHED_PLAN_ROWS_MAX}"
    )
}

fn create_function(signature: &str, body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql SECURITY DEFINER \
         SET search_path = pg_catalog, egret, pg_temp SET jit = off AS {}",
        escape_literal(&format!("#variable_conflict use_column\n{body}"))
    )
}

fn insert_break(capture: &TableCapture) -> String {
    format!(
        "INSERT INTO {} ({TRANSACTION}, {WEIGHT}) VALUES (pg_current_xact_id(), 0);\negret_pending := true;\n",
        capture.changes_table()
    )
}

fn catch_up_name(view: i64) -> String {
    format!("egret.catch_up_{view}")
}

fn fail_name(view: i64) -> String {
    format!("egret.fail_{view}")
}

/// The functions of a view with their argument types, without those of its tables.
pub(crate) fn function_signatures(view: i64) -> [String; 3] {
    [
        format!("{}()", before_function(view)),
        format!("{}()", catch_up_name(view)),
        format!("{}(text)", fail_name(view)),
    ]
}
