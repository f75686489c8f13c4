//! Makes a view: its tables, the capture of what it reads, and what users read.

use egret_postgres::tokio_postgres::{Client, Transaction};

use super::build::{Built, build};
use super::captures::{self, BRIEFLY};
use super::describe::{Column, Described, Names, SourceTable};
use super::identity;
use super::immediate;
use super::load::{check_functions, check_whole, planned};
use super::readable::describe_readable;
use super::refresh::{Read, Refreshable};
use super::registry::{self, Reads, Record};
use super::remove::needed;
use super::requests::Resolved;
use super::rights;
use super::segments;
use super::standing::signature;
use super::tell::{self, Keeping};
use crate::core::capture::{Captured, CapturedColumn, Recording, TRANSACTION};
use crate::core::expression::quoted;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Following, NewView};

/// In what follows names mean what the catalogue and Egret say, whatever a role has set.
pub const SEARCH_PATH: &str = "SET LOCAL search_path = pg_catalog, egret, pg_temp";

/// Makes a view. It is empty until it is refreshed. Where a session has resolved the query already, names and settings are
/// that session's.
///
/// # Errors
/// [`ViewsError`]: nothing is left then.
pub async fn create(
    client: &mut Client,
    view: &NewView,
    (resolved, names): (Option<&Resolved>, Names),
    recording: Recording,
) -> Result<Refreshable, ViewsError> {
    let query = resolved.map_or(&view.query, |resolved| &resolved.definition);
    let mut transaction = client.transaction().await?;
    if let Some(resolved) = resolved {
        // Its constants are read as that session has written them, here and in what users read.
        transaction.batch_execute(&resolved.settings).await?;
    }
    let readable = &view.rights.readable;
    let described = describe_readable(&mut transaction, (query, names), readable).await?;
    let located = |error: ViewsError| error.located(&described.canonical, &view.query);
    let plan = planned(&described, view.mode).map_err(located)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let owner = rights::owner_of_new(&transaction, view.owner.as_deref()).await?;
    let is_of_another = match &owner {
        Some(owner) => rights::check_owner(&transaction, owner, &view.name.schema).await?,
        None => false,
    };
    let view = &NewView {
        owner,
        ..view.clone()
    };
    check_functions(&described, is_of_another).map_err(located)?;
    check_whole(&described, &plan, is_of_another)?;
    immediate::check(
        &described,
        view.mode,
        view.owner.as_deref().filter(|_| is_of_another),
    )?;
    let settings = resolved.map(|resolved| resolved.settings.as_str());
    let id = registry::add(&transaction, view, &described, settings).await?;
    let built = build(&mut transaction, id, plan, &described, true).await?;
    keep_changes(&transaction, id, &view.following).await?;
    let record = registry::record_of(&transaction, id).await?;
    if record.is_of_another {
        rights::check_select(
            &transaction,
            &record.owner,
            (&built, &described),
            view.rights.grants,
        )
        .await?;
    }
    let reads = capture(&transaction, &record, &built, (&described, recording)).await?;
    show(&mut transaction, &record, &built).await?;
    registry::set_shape(&transaction, id, (&built.shape(), built.has_clock)).await?;
    if record.is_of_another {
        rights::hand_over(&transaction, &record, &built, &reads).await?;
    }
    let signature = signature(&transaction, id).await?;
    transaction.commit().await?;
    Ok(Refreshable {
        record,
        built,
        reads,
        signature,
        rows: described.rows(),
        reads_views: described.has_views(),
        has_partitions: described.has_partitions(),
    })
}

/// Has the changes of a new view kept, where its maker asks for that.
async fn keep_changes(
    transaction: &Transaction<'_>,
    id: i64,
    following: &Following,
) -> Result<(), ViewsError> {
    let Some(kept) = following.kept else {
        return Ok(());
    };
    let kept_ms = i64::try_from(kept.duration().as_millis()).unwrap_or(i64::MAX);
    let keeping = Keeping {
        kept_ms: Some(Some(kept_ms)),
        queue: Some(following.queue.as_deref()),
    };
    tell::keep_within(transaction, id, keeping).await
}

/// Makes what users read, and the indexes they asked for. A view that is there is replaced, where that can be done with its
/// grants and whatever depends on it kept.
///
/// # Errors
/// [`ViewsError::InUse`] where it cannot, and something depends on it; what the server says.
pub async fn show(
    transaction: &mut Transaction<'_>,
    record: &Record,
    built: &Built,
) -> Result<(), ViewsError> {
    for columns in &record.indexes {
        let index = built.index(columns)?;
        transaction.batch_execute(&index).await?;
    }
    let name = format!(
        "{}.{}",
        quoted(&record.name.schema),
        quoted(&record.name.name)
    );
    let shown = built.shown();
    if record.shape.is_empty() {
        let create = format!("CREATE VIEW {name} AS {shown}");
        rights::check_create(transaction, &record.name.schema).await?;
        let created = transaction.batch_execute(&create).await;
        return created.map_err(|error| ViewsError::Query {
            error,
            position: None,
        });
    }
    let savepoint = transaction.transaction().await?;
    let replace = format!("CREATE OR REPLACE VIEW {name} AS {shown}");
    match savepoint.batch_execute(&replace).await {
        Ok(()) => Ok(savepoint.commit().await?),
        Err(_) => {
            savepoint.rollback().await?;
            let drop_view = format!("DROP VIEW {name}");
            let dropped = transaction.batch_execute(&drop_view);
            dropped.await.map_err(|error| needed(record, error))?;
            let create = format!("CREATE VIEW {name} AS {shown}");
            Ok(transaction.batch_execute(&create).await?)
        }
    }
}

/// Has the changes of every table recorded.
///
/// # Errors
/// [`ViewsError::Right`]; what the server says.
pub async fn capture(
    transaction: &Transaction<'_>,
    record: &Record,
    built: &Built,
    (described, recording): (&Described, Recording),
) -> Result<Vec<Read>, ViewsError> {
    let (view, of) = (record.id, record.own_capture());
    let mut all = Vec::new();
    for (at, table) in described.tables.iter().enumerate() {
        let name = table.full_name();
        check_names(built, at, &name)?;
        let columns = columns_read(built, at, table);
        let place = (at as i32, name.as_str(), columns.as_str());
        if let Some(kept) = table.kept {
            immediate::check_read(transaction, kept).await?;
            registry::reads(transaction, view, place, Reads::View(kept)).await?;
            all.push(Read::View(kept));
            continue;
        }
        rights::check_trigger(transaction, table).await?;
        let (number, is_new) = captures::number(transaction, table.oid, of, recording).await?;
        registry::reads(transaction, view, place, Reads::Capture(number)).await?;
        let captured = captured(number, built, at, (table, of));
        if is_new {
            for statement in captured.create_changes(recording) {
                transaction.batch_execute(&statement).await?;
            }
        }
        if !is_new {
            extend(transaction, &captured, (table, recording)).await?;
        } else if of.is_none() {
            for statement in captured.create_functions(recording) {
                transaction.batch_execute(&statement).await?;
            }
        }
        all.push(Read::Table {
            oid: table.oid,
            captured,
        });
    }
    if of.is_some() {
        immediate::install(transaction, record, built, &all).await?;
    }
    identity::identify(transaction).await?;
    for read in &all {
        if let Read::Table { oid, captured } = read {
            watch(transaction, captured, *oid).await?;
            // Whoever waits for the first must not be ended while others are waited for.
            transaction.batch_execute(BRIEFLY).await?;
        }
    }
    Ok(all)
}

/// Refuses columns that are called as those which Egret puts beside them.
fn check_names(built: &Built, at: usize, table: &str) -> Result<(), ViewsError> {
    let needed = built.columns_of(Source::Table(at));
    match [WEIGHT, TRANSACTION]
        .iter()
        .find(|name| needed.contains(**name))
    {
        None => Ok(()),
        Some(name) => Err(ViewsError::Unsupported {
            what: format!("the column `{name}` of `{table}`"),
            advice: "call it something else: Egret has columns of that name".to_owned(),
        }),
    }
}

/// The columns that a view needs of what is at a place, with their numbers, and what others are computed from.
pub fn columns_read(built: &Built, at: usize, table: &SourceTable) -> String {
    let needed = built.columns_of(Source::Table(at));
    let mut all = Vec::new();
    for column in &table.columns {
        let name = quoted(&column.name);
        match &column.computed {
            Some(expression) => all.push(format!("{} {name} = {expression}", column.number)),
            None if built.is_whole => {
                all.push(format!("{} {name} {}", column.number, column.sql_type));
            }
            None if needed.contains(&column.name) => {
                all.push(format!("{} {name}", column.number));
            }
            None => {}
        }
    }
    all.join(", ")
}

/// What a view needs recorded of the table at a place, for all views or for one alone.
pub fn captured(
    number: i64,
    built: &Built,
    at: usize,
    (table, of): (&SourceTable, Option<i64>),
) -> Captured {
    let needed = built.columns_of(Source::Table(at));
    let columns = table.columns.iter();
    // Of a query that is computed as a whole any column may tell that something changed; those that are computed when they are
    // read change with others.
    let is_needed = |column: &&Column| match built.is_whole {
        true => column.computed.is_none(),
        false => needed.contains(&column.name),
    };
    let columns = columns.filter(is_needed);
    Captured {
        id: number,
        columns: columns.map(recorded).collect(),
        of,
    }
}

fn recorded(column: &Column) -> CapturedColumn {
    CapturedColumn {
        name: column.name.clone(),
        sql_type: column.base_type.clone(),
        recorded_type: column.recorded_type.clone(),
        collation: column.recorded_collation.clone(),
        type_oid: column.type_oid,
        is_exact: column.is_exact,
    }
}

/// Has more columns recorded of a table, if that is needed. Views that are there do not look at them.
async fn extend(
    transaction: &Transaction<'_>,
    captured: &Captured,
    (table, recording): (&SourceTable, Recording),
) -> Result<(), ViewsError> {
    let before = captures::recorded(transaction, captured).await?;
    let needed = &captured.columns;
    let is_recorded = |column: &&CapturedColumn| {
        let same =
            |(name, kind): &(String, String)| *name == column.name && *kind == column.recorded_type;
        before.iter().any(same)
    };
    let missing: Vec<&CapturedColumn> = needed
        .iter()
        .filter(|column| !is_recorded(column))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Whoever writes at this moment is waited for: who comes later records all columns.
    // To make a trigger again takes the lock that is wanted, and no right to lock the table.
    let sql =
        "SELECT pg_catalog.pg_has_role(relowner, 'USAGE') FROM pg_catalog.pg_class WHERE oid = $1";
    let may_alter: bool = transaction.query_one(sql, &[&table.oid]).await?.get(0);
    let lock = if may_alter {
        format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", table.sql())
    } else {
        let triggers = captured.create_triggers(&table.sql(), may_alter);
        triggers.into_iter().next().unwrap_or_default()
    };
    transaction.batch_execute(&lock).await?;
    for column in &missing {
        // One that has another type now is of no use to any view.
        if before.iter().any(|(name, _)| *name == column.name) {
            let drop = captured.drop_column(column);
            transaction.batch_execute(&drop).await?;
        }
        transaction
            .batch_execute(&captured.add_column(column))
            .await?;
    }
    if captured.of.is_none() {
        segments::record_all(transaction, captured.id, recording.size_max).await?;
    }
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
        .query(
            include_str!("sql/members.sql"),
            &[&table, &captured.functions(), &captured.trigger_count()],
        )
        .await?;
    for member in members {
        // Making triggers waits for whoever writes to the table, and has others wait.
        if member.get("is_watched") {
            continue;
        }
        let (schema, name): (String, String) = (member.get("schema"), member.get("name"));
        let on = format!("{}.{}", quoted(&schema), quoted(&name));
        let may_alter: bool = member.get("may_alter");
        for statement in captured.create_triggers(&on, may_alter) {
            transaction.batch_execute(&statement).await?;
        }
    }
    let function = format!("{}()", captured.function());
    let left = transaction
        .query(include_str!("sql/left.sql"), &[&table, &function])
        .await?;
    for row in left {
        let name = |column| quoted(row.get::<_, &str>(column));
        let on = format!("{}.{}", name("schema"), name("name"));
        for drop in captured.drop_triggers(&on) {
            transaction.batch_execute(&drop).await?;
        }
    }
    Ok(())
}
