//! A query's text as a tree for others to look at.

use crate::core::promql::{Query, QueryError};

/// The tree of a query's parts, as the JSON that Prometheus's `parse_query` has.
///
/// # Errors
/// [`QueryError::Parse`] when the text is not PromQL.
pub fn query_tree(text: &str) -> Result<String, QueryError> {
    // It refuses what the parser alone would stumble over.
    Query::parse(text)?;
    let refuse = |message: String| QueryError::Parse { message };
    let tree = promql_parser::parser::parse(text).map_err(refuse)?;
    serde_json::to_string(&tree).map_err(|error| refuse(error.to_string()))
}
