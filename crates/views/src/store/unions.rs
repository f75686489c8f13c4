//! The types of UNION ALL: each side by itself gives those that the server finds for all of them together.
//!
//! What changed in one side is computed without the others, where nothing would say that its integers are decimal numbers.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::Transaction;

use super::describe::{Column, columns};
use crate::core::compile::probe;
use crate::core::expression::ColumnId;
use crate::core::sql::SourceSql;
use crate::core::tree::{Node, Source};
use crate::error::ViewsError;

/// Casts the columns of the sides of every UNION ALL that have another type, or another collation, than the whole.
///
/// # Errors
/// What the server says.
pub async fn align(
    transaction: &mut Transaction<'_>,
    node: &mut Node,
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<(), ViewsError> {
    for input in node.inputs_mut() {
        Box::pin(align(transaction, input, sources)).await?;
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
    let wanted = types(transaction, union, &union.columns(), sources).await?;
    let Node::UnionAll { inputs, .. } = union else {
        return Ok(());
    };
    for (input, mapped) in inputs {
        let found = types(transaction, input, mapped, sources).await?;
        let Node::Project { columns, .. } = input else {
            continue;
        };
        for (id, (wanted, found)) in mapped.iter().zip(wanted.iter().zip(found)) {
            let own = columns.iter_mut().find(|(own, _)| own == id);
            let Some((_, expression)) = own else {
                continue;
            };
            if wanted.base_type != found.base_type {
                *expression = expression.cast(&wanted.base_type);
            }
            if wanted.collation != found.collation {
                let collation = wanted.collation.as_deref();
                let collation = collation.unwrap_or("pg_catalog.\"default\"");
                *expression = expression.within("(", &format!(") COLLATE {collation}"));
            }
        }
    }
    Ok(())
}

/// The columns of a node, as the server describes them.
async fn types(
    transaction: &mut Transaction<'_>,
    node: &Node,
    ids: &[ColumnId],
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<Vec<Column>, ViewsError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    columns(transaction, &probe(node, ids, sources)).await
}
