//! Views that are there, as they are needed to refresh them: their definitions are resolved anew, and compared with their
//! tables.

use egret_postgres::tokio_postgres::{Client, GenericClient};

use super::build::build;
use super::create::{SEARCH_PATH, captured, columns_read};
use super::describe::{Described, Names, describe};
use super::immediate;
use super::refresh::{Read, Refreshable};
use super::registry;
use super::standing::signature;
use crate::core::analyse::{analyse, prune, whole};
use crate::core::expression::ColumnId;
use crate::core::functions::refused;
use crate::core::keys::with_keys;
use crate::core::locate::call_of;
use crate::core::refusal::Refusal;
use crate::core::renumber::renumber;
use crate::core::tree::Plan;
use crate::error::ViewsError;
use crate::model::Mode;

/// What a view computes, and how.
pub struct Planned {
    /// Its stages.
    pub plan: Plan,
    /// What tells the rows of each stage apart, if anything does.
    pub keys: Vec<Option<Vec<ColumnId>>>,
    /// Whether nothing is known of the query but its columns.
    pub is_whole: bool,
    /// Whether what it comes to changes as time passes.
    pub has_clock: bool,
}

/// Refuses functions whose results change by themselves. In a view that is of another role than refreshes it, also those
/// that are neither PostgreSQL's own nor owned by a superuser: what they leave behind in the transaction, such as deferred
/// triggers, would run with the rights of the role that refreshes.
///
/// # Errors
/// [`ViewsError::Refused`], [`ViewsError::UntrustedCode`].
pub fn check_functions(described: &Described, is_of_another: bool) -> Result<(), ViewsError> {
    let untrusted = described.functions.iter().find(|one| !one.is_trusted);
    if let (Some(function), true) = (untrusted, is_of_another) {
        let (schema, name) = (&function.schema, &function.name);
        return Err(ViewsError::UntrustedCode {
            what: format!("function `{schema}.{name}`"),
            advice: "use PostgreSQL's own functions, or let a superuser own this one".to_owned(),
        });
    }
    if let (Some((table, function)), true) = (&described.untrusted_code, is_of_another) {
        return Err(ViewsError::UntrustedCode {
            what: format!(
                "function `{function}`, which indexes, constraints or statistics of `{table}` call,"
            ),
            advice: "let a superuser own that function".to_owned(),
        });
    }
    for function in &described.functions {
        let (schema, name) = (&function.schema, &function.name);
        if let Some(advice) = refused(schema, name, &function.volatility) {
            return Err(ViewsError::Refused(Refusal::of_every_mode(
                format!("the function `{schema}.{name}`"),
                call_of(&described.canonical, name),
                advice,
            )));
        }
    }
    Ok(())
}

/// Refuses a query that names views and is run as its owner by those names: somebody may put another view in the place of
/// one meanwhile, with functions that were not looked at.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub fn check_whole(
    described: &Described,
    planned: &Planned,
    is_of_another: bool,
) -> Result<(), ViewsError> {
    match planned.is_whole && is_of_another && described.has_untrusted_views {
        true => Err(ViewsError::Unsupported {
            what: "a query over views that is only computed as a whole, in a view of another role,"
                .to_owned(),
            advice: "read the tables instead".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Plans a query. One that is only computed as a whole may have what is not covered incrementally.
///
/// # Errors
/// [`ViewsError::Refused`]; [`ViewsError::Unsupported`] in mode immediate, if it changes as time passes.
pub fn planned(described: &Described, mode: Mode) -> Result<Planned, ViewsError> {
    let mut plan = match (analyse(&described.canonical, &described.facts), mode) {
        (Ok(plan), _) => plan,
        (Err(_), Mode::Full) => {
            let columns = described.columns.iter().map(|column| column.name.clone());
            return Ok(Planned {
                plan: whole(described.tables.len(), columns),
                keys: vec![None],
                is_whole: true,
                has_clock: described.names_clock(),
            });
        }
        (Err(refusal), _) => return Err(ViewsError::Refused(refusal)),
    };
    let mut keys = with_keys(&mut plan, &|at| described.tables[at].typed_key());
    prune(&mut plan, &keys);
    renumber(&mut plan, &mut keys);
    let has_clock = plan.stages.iter().any(|stage| stage.input.has_clock());
    immediate::check_clock(has_clock, mode)?;
    Ok(Planned {
        plan,
        keys,
        is_whole: false,
        has_clock,
    })
}

/// Loads a view.
///
/// # Errors
/// [`ViewsError::NotFound`]; [`ViewsError::SourceGone`] when its query does not mean any more what its tables have; what
/// the server says.
pub async fn load(client: &mut Client, view: i64) -> Result<Refreshable, ViewsError> {
    let mut transaction = client.transaction().await?;
    // First: what is altered from here on differs from it.
    let signature = signature(&transaction, view).await?;
    let record = registry::record_of(&transaction, view).await?;
    record.apply_settings(&transaction).await?;
    let gone = |error: ViewsError| match error {
        ViewsError::Query { error, .. } => ViewsError::SourceGone {
            reason: egret_base::error::chain(&error).to_string(),
        },
        error => error,
    };
    let described = describe(&mut transaction, &record.definition, Names::OfSession)
        .await
        .map_err(gone)?;
    check_functions(&described, record.is_of_another)?;
    let plan = planned(&described, record.mode)?;
    check_whole(&described, &plan, record.is_of_another)?;
    transaction.batch_execute(SEARCH_PATH).await?;
    let built = build(&mut transaction, view, plan, &described, false).await?;
    let kept = described.tables.iter().map(|table| table.kept);
    if !kept.eq(record.reads.iter().map(|(_, view)| *view)) {
        return Err(ViewsError::SourceGone {
            reason: "a name that it reads is a view of Egret now, or is none any more".to_owned(),
        });
    }
    if built.shape() != record.shape {
        return Err(ViewsError::SourceGone {
            reason: "the types of its columns, or a key, are others now".to_owned(),
        });
    }
    let mut reads = Vec::new();
    for (at, table) in described.tables.iter().enumerate() {
        reads.push(match table.kept {
            Some(kept) => Read::View(kept),
            None => {
                let of = record.own_capture();
                let number = capture_of(&transaction, table.oid, of).await?;
                let number = number.ok_or_else(|| ViewsError::SourceGone {
                    reason: format!("`{}.{}` is another table now", table.schema, table.name),
                })?;
                Read::Table {
                    oid: table.oid,
                    captured: captured(number, &built, at, (table, of)),
                }
            }
        });
    }
    let (rows, reads_views) = (described.rows(), described.has_views());
    let has_partitions = described.has_partitions();
    let tables = described.tables.iter().enumerate();
    let columns = tables.map(|(at, table)| columns_read(&built, at, table));
    let columns: Vec<String> = columns.collect();
    transaction.rollback().await?;
    registry::set_columns(client, view, &columns).await?;
    Ok(Refreshable {
        record,
        built,
        reads,
        signature,
        rows,
        reads_views,
        has_partitions,
    })
}

async fn capture_of(
    client: &impl GenericClient,
    table: u32,
    of: Option<i64>,
) -> Result<Option<i64>, ViewsError> {
    let sql =
        "SELECT id FROM egret.view_capture WHERE relation = $1 AND view IS NOT DISTINCT FROM $2";
    let row = client.query_opt(sql, &[&table, &of]).await?;
    Ok(row.map(|row| row.get(0)))
}
