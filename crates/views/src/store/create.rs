//! Makes a view: its tables, the capture of what it reads, and what users read.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::{Built, build};
use super::describe::{Column, Described, SourceTable, describe};
use super::refresh::Refreshable;
use super::registry;
use crate::core::analyse::{analyse, parse, prune};
use crate::core::capture::{Captured, CapturedColumn};
use crate::core::compile::with_key;
use crate::core::expression::quoted;
use crate::core::functions::refused;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// Makes a view of a query under a name. It is empty until it is refreshed.
///
/// # Errors
/// [`ViewsError`]: nothing is left then.
pub async fn create(
    client: &mut Client,
    (schema, name): (&str, &str),
    sql: &str,
) -> Result<Refreshable, ViewsError> {
    parse(sql).map_err(ViewsError::Refused)?;
    let mut transaction = client.transaction().await?;
    let described = describe(&mut transaction, sql).await?;
    for function in &described.functions {
        let (schema, name) = (&function.schema, &function.name);
        if let Some(advice) = refused(schema, name, &function.volatility) {
            return Err(ViewsError::Unsupported {
                what: format!("the function `{schema}.{name}`"),
                advice: advice.to_owned(),
            });
        }
    }
    let mut plan = analyse(&described.canonical, &described.facts).map_err(ViewsError::Refused)?;
    let keys = |source: Source| match source {
        Source::Table(at) => described.tables[at].key.clone(),
        Source::Stage(_) => None,
    };
    let key = with_key(&mut plan, &keys);
    prune(&mut plan);
    transaction
        .batch_execute("SET LOCAL search_path = pg_catalog, egret, pg_temp")
        .await?;
    let new = registry::NewView {
        name: (schema, name),
        query: sql,
        definition: &described.canonical,
    };
    let id = registry::add(&transaction, &new).await?;
    let built = build(&mut transaction, id, plan, key, &described, true).await?;
    let captured = capture(&transaction, id, &built, &described).await?;
    registry::set_shape(&transaction, id, &built.shape()).await?;
    let shown = format!(
        "CREATE VIEW {}.{} AS {}",
        quoted(schema),
        quoted(name),
        built.shown()
    );
    transaction.batch_execute(&shown).await?;
    transaction.commit().await?;
    let tables = described.tables.iter().map(|table| table.oid).collect();
    Ok(Refreshable {
        id,
        built,
        captured,
        tables,
    })
}

/// Has the changes of every table recorded.
async fn capture(
    transaction: &Transaction<'_>,
    view: i64,
    built: &Built,
    described: &Described,
) -> Result<Vec<Captured>, ViewsError> {
    let mut all = Vec::new();
    for (at, table) in described.tables.iter().enumerate() {
        let needed = built.columns_of(Source::Table(at));
        let columns = table.columns.iter();
        let columns = columns.filter(|column| needed.contains(&column.name));
        let (number, is_new) = registry::capture(transaction, table.oid).await?;
        registry::reads(transaction, view, at as i32, number).await?;
        let mut captured = Captured {
            id: number,
            columns: columns.map(recorded).collect(),
        };
        if is_new {
            for statement in captured.install() {
                transaction.batch_execute(&statement).await?;
            }
        } else {
            extend(transaction, &mut captured, table).await?;
        }
        watch(transaction, &captured, table.oid).await?;
        all.push(captured);
    }
    Ok(all)
}

fn recorded(column: &Column) -> CapturedColumn {
    CapturedColumn {
        name: column.name.clone(),
        sql_type: column.base_type.clone(),
        type_oid: column.type_oid,
        is_exact: column.is_exact,
    }
}

/// Has more columns recorded of a table, if that is needed. Views that are there do not look at them.
async fn extend(
    transaction: &Transaction<'_>,
    captured: &mut Captured,
    table: &SourceTable,
) -> Result<(), ViewsError> {
    let before = registry::recorded(transaction, captured).await?;
    let needed = captured.columns.clone();
    let missing = needed
        .iter()
        .filter(|column| !before.contains(&column.name));
    let missing: Vec<&CapturedColumn> = missing.collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Whoever writes at this moment is waited for: who comes later records all columns.
    let lock = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", table.sql());
    transaction.batch_execute(&lock).await?;
    for column in &missing {
        transaction
            .batch_execute(&captured.add_column(column))
            .await?;
    }
    let names: Vec<&String> = before
        .iter()
        .chain(missing.iter().map(|column| &column.name))
        .collect();
    let all = Captured {
        id: captured.id,
        columns: table
            .columns
            .iter()
            .filter(|column| names.contains(&&column.name))
            .map(recorded)
            .collect(),
    };
    transaction.batch_execute(&all.create_function()).await?;
    Ok(())
}

/// Has every statement captured that names a table or one of its partitions, and none that names what is not any more.
///
/// # Errors
/// What the server says.
pub async fn watch(
    transaction: &Transaction<'_>,
    captured: &Captured,
    table: u32,
) -> Result<(), ViewsError> {
    let members = transaction
        .query(include_str!("sql/members.sql"), &[&table])
        .await?;
    for member in members {
        let (schema, name): (String, String) = (member.get("schema"), member.get("name"));
        let on = format!("{}.{}", quoted(&schema), quoted(&name));
        for statement in captured.create_triggers(&on) {
            transaction.batch_execute(&statement).await?;
        }
    }
    let function = format!("{}()", captured.function());
    let left = transaction
        .query(include_str!("sql/left.sql"), &[&table, &function])
        .await?;
    for row in left {
        let name = |column| quoted(row.get::<_, &str>(column));
        let (schema, table, trigger) = (name("schema"), name("name"), name("trigger"));
        let drop = format!("DROP TRIGGER {trigger} ON {schema}.{table}");
        transaction.batch_execute(&drop).await?;
    }
    Ok(())
}
