//! Types of UNION ALL: casts the columns of each side to the types that the server finds for the
//! union.
//!
//! Changes of one side are computed without the others: nothing else would say that its integers
//! are decimal numbers.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::Transaction;

use super::describe::describe_columns;
use super::query_description::Column;
use crate::core::compile::type_probe;
use crate::core::expression::ColumnId;
use crate::core::sql::SourceSql;
use crate::core::tree::{Node, Source};
use crate::error::ViewsError;

/// Casts the columns of each side of a UNION ALL to the types and collations of the whole.
pub(crate) async fn align_types(
    transaction: &mut Transaction<'_>,
    node: &mut Node,
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<(), ViewsError> {
    for input in node.inputs_mut() {
        Box::pin(align_types(transaction, input, sources)).await?;
    }
    match node {
        Node::UnionAll { .. } => align_sides(transaction, node, sources).await,
        _ => Ok(()),
    }
}

async fn align_sides(
    transaction: &mut Transaction<'_>,
    union: &mut Node,
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<(), ViewsError> {
    let union_columns = column_types(transaction, union, &union.columns(), sources).await?;
    let Node::UnionAll { inputs, .. } = union else {
        return Ok(());
    };
    for (input, mapped) in inputs {
        let side_columns = column_types(transaction, input, mapped, sources).await?;
        let Node::Project { columns, .. } = input else {
            continue;
        };
        for (id, (union_column, side_column)) in
            mapped.iter().zip(union_columns.iter().zip(side_columns))
        {
            let projected = columns.iter_mut().find(|(own, _)| own == id);
            let Some((_, expression)) = projected else {
                continue;
            };
            if union_column.base_type != side_column.base_type {
                *expression = expression.cast(&union_column.base_type);
            }
            if union_column.collation != side_column.collation {
                let collation =
                    union_column.collation.as_deref().unwrap_or("pg_catalog.\"default\"");
                *expression = expression.wrap("(", &format!(") COLLATE {collation}"));
            }
        }
    }
    Ok(())
}

/// The columns of a node, as the server describes them.
async fn column_types(
    transaction: &mut Transaction<'_>,
    node: &Node,
    ids: &[ColumnId],
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<Vec<Column>, ViewsError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    describe_columns(transaction, &type_probe(node, ids, sources)).await
}
