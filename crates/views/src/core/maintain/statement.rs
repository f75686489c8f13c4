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
    pub ctes: Vec<String>,
    /// Condition under which there are too many changes, so that nothing is applied.
    pub too_many_condition: Option<String>,
    /// How the rows that do not fit are counted.
    pub consistency_check: ConsistencyCheck,
}

/// How a statement counts stored rows that do not fit the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyCheck {
    /// The number of rows of `egret_wrong`.
    Rows,
    /// An expression over `removed`, `changed` and these aggregates of a common table expression.
    Counted {
        /// The aggregates with their names.
        aggregates: &'static str,
        /// Name of the common table expression.
        cte: &'static str,
        /// The expression in SQL.
        expression: &'static str,
    },
}

impl Statement {
    /// Its SQL, with other common table expressions before its own.
    pub fn to_sql(&self, preceding_ctes: &[String]) -> String {
        let ctes: Vec<&str> = preceding_ctes.iter().chain(&self.ctes).map(String::as_str).collect();
        let counts = ["added", "changed", "removed"];
        let counts = counts.map(|name| format!("(SELECT count(*) FROM egret_{name}) AS {name}"));
        let with = ctes.join(", ");
        let counts = counts.join(", ");
        let checked = |wrong: &str| match &self.too_many_condition {
            None => wrong.to_owned(),
            Some(is_over) => format!("CASE WHEN {is_over} THEN -1::bigint ELSE {wrong} END"),
        };
        match self.consistency_check {
            ConsistencyCheck::Rows => {
                let wrong = checked("(SELECT count(*) FROM egret_wrong)");
                format!("WITH {with} SELECT {counts}, {wrong} AS wrong")
            }
            // Each common table expression is counted once.
            ConsistencyCheck::Counted { aggregates: list, cte: of, expression } => {
                let wrong = checked(expression);
                format!(
                    "WITH {with} SELECT added, changed, removed, {wrong} AS wrong FROM (SELECT {counts}, {list} FROM {of}) AS egret_seen"
                )
            }
        }
    }
}
