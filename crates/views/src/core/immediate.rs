//! Views that are kept fresh within the transactions that write: the functions that their triggers call.
//!
//! Before a statement changes anything its transaction takes the view's lock until it ends: two writers on both sides of a
//! join would each miss what the other did. After it the view takes what changed, from the transition tables.
//!
//! A statement may change several tables, itself or by cascades and by triggers of the user, and a table is read as all of them have
//! left it. So statements that have begun and are not done are counted, in `egret.view_statement`: while there are
//! others what changed is only recorded, and the last applies all of it. The count is a table, as savepoints must take it back
//! with what they take back; each step is a row of its own, since a row that is changed over and over within one transaction
//! is found ever more slowly.
//!
//! What goes wrong in a view does not fail the statement: the view is marked, and computed anew by Egret.

use postgres_protocol::escape::escape_literal;

use super::capture::{Captured, NEW, OLD, TRANSACTION, before, revoke};
use super::sql::WEIGHT;

/// Statements that bring a view up to date, in their order.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Each has one row that says what it did.
    pub statements: Vec<String>,
    /// Tables to be emptied after them.
    pub sinks: Vec<String>,
}

/// What is recorded of a table, and how that is applied.
#[derive(Clone, Debug)]
pub struct Watched {
    /// All columns that the view needs.
    pub captured: Captured,
    /// From the transition tables of an INSERT, an UPDATE and a DELETE.
    pub direct: [Work; 3],
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Immediate {
    /// The number of the view.
    pub view: i64,
    /// Its name, for messages.
    pub name: String,
    /// The key of its advisory lock.
    pub lock_key: i64,
    /// The tables that it reads.
    pub tables: Vec<Watched>,
    /// From what is recorded of all tables.
    pub apply: Work,
    /// From nothing.
    pub rebuild: Work,
    /// The settings that its expressions are computed with, as functions have them.
    pub settings: String,
}

/// Beyond so many rows statements are planned for them. Up to that they keep the plan that they have.
const PLANNED_ROWS: u32 = 1_000;

/// The sources of the three kinds of statements, as `direct` has them.
pub const SOURCES: [&[(&str, &str)]; 3] = [&[NEW], &[OLD, NEW], &[OLD]];

/// Whether the view is kept fresh: one that is not is only locked, so that whoever computes it anew waits.
fn is_live(view: i64) -> String {
    format!(
        "coalesce((SELECT kept.snapshot IS NOT NULL FROM egret.view AS kept WHERE kept.id = {view}), false)"
    )
}

impl Work {
    /// As part of a function that has a variable `egret_done`.
    fn run(&self, each: impl Fn(&str) -> String) -> String {
        let statements = self.statements.iter().map(|sql| {
            format!(
                "{};\nIF egret_done.wrong > 0 THEN\nRAISE EXCEPTION 'what is kept of the view does not fit with what changed';\nEND IF;\n",
                each(sql)
            )
        });
        let sinks = self
            .sinks
            .iter()
            .map(|sink| format!("DELETE FROM {sink};\n"));
        statements.chain(sinks).collect()
    }

    fn planned_once(&self) -> String {
        self.run(|sql| format!("{sql} INTO egret_done"))
    }

    fn planned_each_time(&self) -> String {
        self.run(|sql| format!("EXECUTE {} INTO egret_done", escape_literal(sql)))
    }
}

impl Immediate {
    /// What makes the functions, of which those for triggers are called by them.
    pub fn create_functions(&self) -> Vec<String> {
        let mut all = vec![self.before(), self.fail(), self.catch_up()];
        all.extend(self.tables.iter().map(|table| self.after(table)));
        all.extend(functions(self.view).iter().map(|function| revoke(function)));
        all.extend(
            self.tables
                .iter()
                .map(|table| revoke(&format!("{}()", table.captured.function()))),
        );
        all
    }

    /// The last step of this transaction, as `egret_open` and `egret_pending`.
    fn last_step(&self) -> String {
        format!(
            "SELECT step.open, step.has_pending INTO egret_open, egret_pending FROM egret.view_statement AS step \
             WHERE step.view = {} AND step.xid = pg_current_xact_id() ORDER BY step.id DESC LIMIT 1;\n",
            self.view
        )
    }

    fn step(&self, open: &str, has_pending: &str) -> String {
        format!(
            "INSERT INTO egret.view_statement (view, xid, open, has_pending) \
             VALUES ({}, pg_current_xact_id(), {open}, {has_pending});\n",
            self.view
        )
    }

    /// Before a statement.
    fn before(&self) -> String {
        let (view, lock_key) = (self.view, self.lock_key);
        let message = format!(
            "view {} is kept fresh within the transactions that write to what it reads, which must be READ COMMITTED",
            self.name
        );
        let body = format!(
            "DECLARE\nwas_live boolean;\negret_open integer;\negret_pending boolean;\n\
             BEGIN\n\
             IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN\n\
             RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = {message},\n\
             HINT = 'Write in a READ COMMITTED transaction, or give the view another mode.';\n\
             END IF;\n\
             LOOP\n\
             was_live := {is_live};\n\
             IF was_live THEN\nPERFORM pg_advisory_xact_lock({lock_key});\n\
             ELSE\nPERFORM pg_advisory_xact_lock_shared({lock_key});\nEND IF;\n\
             EXIT WHEN was_live = {is_live};\n\
             END LOOP;\n\
             {last}{step}\
             RETURN NULL;\n\
             END",
            message = escape_literal(&message),
            is_live = is_live(view),
            last = self.last_step(),
            step = self.step(
                "coalesce(egret_open, 0) + 1",
                "coalesce(egret_pending, false)"
            ),
        );
        function(&format!("{}() RETURNS trigger", before(view)), "", &body)
    }

    /// After a statement.
    fn after(&self, table: &Watched) -> String {
        let captured = &table.captured;
        let direct = ["INSERT", "UPDATE", "DELETE"]
            .iter()
            .zip(&table.direct)
            .zip(SOURCES);
        let direct: String = direct
            .map(|((event, work), sources)| self.after_event(captured, event, work, sources))
            .collect();
        let body = format!(
            "DECLARE\negret_open integer;\negret_pending boolean;\negret_done record;\negret_why text;\n\
             BEGIN\n\
             {last}\
             egret_open := egret_open - 1;\n\
             IF {is_live} THEN\n\
             BEGIN\n\
             IF egret_open IS NULL THEN\nRAISE EXCEPTION 'the trigger before the statement did not run';\nEND IF;\n\
             CASE TG_OP\n{direct}\
             ELSE\n{record_break}\
             END CASE;\n\
             IF egret_open = 0 AND egret_pending THEN\nPERFORM {catch_up}();\negret_pending := false;\nEND IF;\n\
             EXCEPTION\n\
             WHEN serialization_failure OR deadlock_detected OR lock_not_available THEN\nRAISE;\n\
             WHEN OTHERS THEN\n\
             GET STACKED DIAGNOSTICS egret_why = MESSAGE_TEXT;\n\
             PERFORM {fail}(egret_why);\negret_pending := false;\n\
             END;\n\
             END IF;\n\
             {step}\
             RETURN NULL;\n\
             END",
            last = self.last_step(),
            is_live = is_live(self.view),
            record_break = record_break(captured),
            catch_up = catch_up(self.view),
            fail = fail(self.view),
            step = self.step(
                "coalesce(egret_open, 0)",
                "coalesce(egret_pending AND egret_open > 0, false)"
            ),
        );
        let signature = format!("{}() RETURNS trigger", captured.function());
        function(&signature, &self.settings, &body)
    }

    fn after_event(
        &self,
        captured: &Captured,
        event: &str,
        work: &Work,
        sources: &[(&str, &str)],
    ) -> String {
        let (table, _) = sources[sources.len() - 1];
        format!(
            "WHEN '{event}' THEN\n\
             IF NOT EXISTS (SELECT FROM {table}) THEN\n\
             NULL;\n\
             ELSIF NOT {fits} THEN\n{record_break}\
             {untouched}\
             ELSIF egret_open > 0 OR egret_pending THEN\n{record};\negret_pending := true;\n\
             ELSIF {many} THEN\n{each_time}\
             ELSE\n{once}END IF;\n",
            fits = captured.fits(table),
            untouched = match event {
                "UPDATE" => format!("ELSIF {} THEN\nNULL;\n", captured.untouched()),
                _ => String::new(),
            },
            record_break = record_break(captured),
            record = captured.record(sources),
            many = are_many(&format!("SELECT FROM {table}")),
            each_time = work.planned_each_time(),
            once = work.planned_once(),
        )
    }

    /// Applies all that is recorded.
    fn catch_up(&self) -> String {
        let changes = self.tables.iter().map(|table| table.captured.changes());
        let changes: Vec<String> = changes.collect();
        let has_break = changes
            .iter()
            .map(|changes| format!("EXISTS (SELECT FROM {changes} WHERE {WEIGHT} = 0)"));
        let has_break: Vec<String> = has_break.collect();
        let rows = changes
            .iter()
            .map(|changes| format!("SELECT FROM {changes}"));
        let rows: Vec<String> = rows.collect();
        let empty = changes
            .iter()
            .map(|changes| format!("DELETE FROM {changes};\n"));
        let body = format!(
            "DECLARE\negret_done record;\n\
             BEGIN\n\
             IF {has_break} THEN\n{rebuild}\
             ELSIF {many} THEN\n{each_time}\
             ELSE\n{once}END IF;\n\
             {empty}\
             END",
            has_break = has_break.join(" OR "),
            rebuild = self.rebuild.planned_each_time(),
            many = are_many(&rows.join(" UNION ALL ")),
            each_time = self.apply.planned_each_time(),
            once = self.apply.planned_once(),
            empty = empty.collect::<String>(),
        );
        let signature = format!("{}() RETURNS void", catch_up(self.view));
        function(&signature, &self.settings, &body)
    }

    /// Remembers that a view is not what its query says.
    fn fail(&self) -> String {
        let changes = self.tables.iter().map(|table| table.captured.changes());
        let empty = changes.map(|changes| format!("DELETE FROM {changes};\n"));
        let body = format!(
            "BEGIN\n\
             {}\
             UPDATE egret.view SET snapshot = NULL, reason = why, \
             state = CASE state WHEN 'active' THEN 'failing' ELSE state END WHERE id = {};\n\
             END",
            empty.collect::<String>(),
            self.view
        );
        let signature = format!("{}(why text) RETURNS void", fail(self.view));
        function(&signature, "", &body)
    }
}

/// Whether a query has more rows than statements keep their plan for.
fn are_many(query: &str) -> String {
    format!("(SELECT count(*) FROM ({query} LIMIT {PLANNED_ROWS} + 1) AS counted) > {PLANNED_ROWS}")
}

fn function(signature: &str, settings: &str, body: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {signature} LANGUAGE plpgsql SECURITY DEFINER \
         SET search_path = pg_catalog, egret, pg_temp SET jit = off{settings} AS {}",
        escape_literal(&format!("#variable_conflict use_column\n{body}"))
    )
}

fn record_break(captured: &Captured) -> String {
    format!(
        "INSERT INTO {} ({TRANSACTION}, {WEIGHT}) VALUES (pg_current_xact_id(), 0);\negret_pending := true;\n",
        captured.changes()
    )
}

fn catch_up(view: i64) -> String {
    format!("egret.catch_up_{view}")
}

fn fail(view: i64) -> String {
    format!("egret.fail_{view}")
}

/// The functions of a view, with the types of their arguments, without those of its tables.
pub fn functions(view: i64) -> [String; 3] {
    [
        format!("{}()", before(view)),
        format!("{}()", catch_up(view)),
        format!("{}(text)", fail(view)),
    ]
}
