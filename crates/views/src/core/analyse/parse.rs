//! Parses a query.

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use crate::core::refusal::Refusal;

/// Construct of a refusal for text that is not SQL.
pub const MALFORMED: &str = "this text";

/// Parses a query that is one SELECT.
///
/// # Errors
/// [`Refusal`] for any other statement, or with the parser's message.
pub fn parse(sql: &str) -> Result<SelectStmt, Refusal> {
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::in_every_mode(MALFORMED, None, error.to_string()))?;
    let mut statements = parsed.protobuf.stmts.into_iter();
    let (first, second) = (statements.next(), statements.next());
    if second.is_some() {
        let advice = "give exactly one query";
        return Err(Refusal::in_every_mode("a second statement", None, advice));
    }
    match first.and_then(|raw| raw.stmt).and_then(|node| node.node) {
        Some(NodeEnum::SelectStmt(select)) => Ok(*select),
        _ => {
            let advice = "give a SELECT";
            let construct = "a statement that is not a query";
            Err(Refusal::in_every_mode(construct, None, advice))
        }
    }
}

/// The tables and views that a query names, as `name` or `schema.name`; none if it is not SQL.
pub(crate) fn referenced_tables(sql: &str) -> Vec<String> {
    pg_query::parse(sql, pg_query::ParserOptions::default())
        .map(|parsed| parsed.tables())
        .unwrap_or_default()
}
