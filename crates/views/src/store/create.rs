//! Makes a view: its tables, the capture of what it reads, and what users read.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::{Built, build};
use super::describe::{Described, describe};
use super::refresh::Refreshable;
use crate::core::analyse::{analyse, parse, prune};
use crate::core::capture::{Captured, CapturedColumn};
use crate::core::compile::with_key;
use crate::core::expression::quoted;
use crate::core::functions::refused;
use crate::core::tree::Source;
use crate::error::ViewsError;

/// Makes a view of a query under a name, which is written as in SQL. It is empty until it is refreshed.
///
/// # Errors
/// [`ViewsError`]: nothing is left then.
pub async fn create(
    client: &mut Client,
    id: i64,
    name: &str,
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
    let built = build(&mut transaction, id, plan, key, &described, true).await?;
    let captured = capture(&transaction, id, &built, &described).await?;
    let shown = format!("CREATE VIEW {name} AS {}", built.shown());
    transaction.batch_execute(&shown).await?;
    transaction.commit().await?;
    let tables = described.tables.iter().map(|table| table.oid).collect();
    Ok(Refreshable {
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
        let captured = Captured {
            id: view * 1_000 + at as i64,
            columns: columns
                .map(|column| CapturedColumn {
                    name: column.name.clone(),
                    sql_type: column.base_type.clone(),
                    type_oid: column.type_oid,
                    is_exact: column.is_exact,
                })
                .collect(),
        };
        for statement in captured.install(true) {
            transaction.batch_execute(&statement).await?;
        }
        watch(transaction, &captured, table.oid).await?;
        all.push(captured);
    }
    Ok(all)
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
