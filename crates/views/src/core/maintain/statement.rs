//! The statement that maintains a stage.

/// A statement that maintains a stage. It returns one row:
///
/// | column | |
/// |---|---|
/// | `added`, `changed`, `removed` | numbers of rows of the table |
/// | `wrong` | rows that do not fit the changes: 0, else the view is rebuilt; -1: too many rows |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its common table expressions, in order.
    pub with: Vec<String>,
    /// Condition under which there are too many changes, so that nothing is applied.
    pub is_over: Option<String>,
    /// How the rows that do not fit are counted.
    pub wrong: ConsistencyCheck,
}

/// How a statement counts stored rows that do not fit the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyCheck {
    /// The number of rows of `egret_wrong`.
    Rows,
    /// An expression over `removed`, `changed` and these aggregates of a common table expression.
    Counted {
        /// The aggregates with their names.
        list: &'static str,
        /// Name of the common table expression.
        of: &'static str,
        /// The expression in SQL.
        wrong: &'static str,
    },
}

impl Statement {
    /// Its SQL, with other common table expressions before its own.
    pub fn sql(&self, before: &[String]) -> String {
        let with: Vec<&str> = before
            .iter()
            .chain(&self.with)
            .map(String::as_str)
            .collect();
        let counts = ["added", "changed", "removed"];
        let counts = counts.map(|name| format!("(SELECT count(*) FROM egret_{name}) AS {name}"));
        let with = with.join(", ");
        let counts = counts.join(", ");
        let wrong = |wrong: &str| match &self.is_over {
            None => wrong.to_owned(),
            Some(is_over) => format!("CASE WHEN {is_over} THEN -1::bigint ELSE {wrong} END"),
        };
        match self.wrong {
            ConsistencyCheck::Rows => {
                let wrong = wrong("(SELECT count(*) FROM egret_wrong)");
                format!("WITH {with} SELECT {counts}, {wrong} AS wrong")
            }
            // Each common table expression is counted once.
            ConsistencyCheck::Counted {
                list,
                of,
                wrong: expression,
            } => {
                let wrong = wrong(expression);
                format!(
                    "WITH {with} SELECT added, changed, removed, {wrong} AS wrong FROM (SELECT {counts}, {list} FROM {of}) AS egret_seen"
                )
            }
        }
    }
}
