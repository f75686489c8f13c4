//! What users read of a view in mode immediate raises an error while the view is not maintained.
//!
//! Such a view promises the rows of its query at any moment, so old rows would be wrong ones. The
//! PostgreSQL view therefore calls `egret.require_live_view` once for each statement that reads it.

use egret_postgres::tokio_postgres::GenericClient;

use super::materialized_view::MaterializedView;
use super::record::Record;
use crate::error::ViewsError;

/// Sets the guard on the PostgreSQL view of a view in mode immediate, or removes it in other modes.
/// A relation of that name which does not show the view is left alone.
pub(crate) async fn set_read_guard(
    client: &impl GenericClient,
    record: &Record,
    built: &MaterializedView,
) -> Result<(), ViewsError> {
    let sql = include_str!("sql/read_guard.sql");
    let Some(row) = client.query_opt(sql, &[&record.id]).await? else {
        return Ok(());
    };
    let is_guarded: bool = row.get("is_guarded");
    let shown = match record.immediate_view() {
        Some(view) if !is_guarded => guarded(view, &built.user_query()),
        None if is_guarded => built.user_query(),
        _ => return Ok(()),
    };
    let replace = format!("CREATE OR REPLACE VIEW {} AS {shown}", record.name.sql());
    Ok(client.batch_execute(&replace).await?)
}

fn guarded(view: i64, shown: &str) -> String {
    format!(
        "SELECT egret_rows.* FROM ({shown}) AS egret_rows WHERE egret.require_live_view({view})"
    )
}
