//! Status of views before and after a refresh.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::catalog_fingerprint::{CatalogFingerprint, ROW_VERSIONS};
use super::refreshable::Refreshable;
use super::statements::Statements;
use super::view_status::ViewStatus;
use crate::error::ViewsError;
use crate::model::State;

/// Query of the status of views, for [`parse_statuses`].
pub(crate) const STATUS: &str = include_str!("sql/standing.sql");

/// Reads the status of views. A view of another server, or one whose tables differ from when it was
/// loaded, must be loaded again.
///
/// # Errors
/// [`ViewsError::NotFound`] and [`ViewsError::SourceAltered`].
pub(crate) async fn read_statuses(
    client: &impl GenericClient,
    statements: &mut Statements,
    views: &[&Refreshable],
) -> Result<BTreeMap<i64, ViewStatus>, ViewsError> {
    let ids: Vec<i64> = views.iter().map(|view| view.record.id).collect();
    let server = statements.server_identity(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
    let rows = statements.query(client, STATUS, &values).await?;
    let statuses = parse_statuses(&rows)?;
    check_loaded(&statuses, views)?;
    Ok(statuses)
}

/// The status of views by the rows of [`STATUS`].
///
/// # Errors
/// [`ViewsError::SourceAltered`] for a view of another server.
pub(crate) fn parse_statuses(rows: &[Row]) -> Result<BTreeMap<i64, ViewStatus>, ViewsError> {
    let mut statuses = BTreeMap::new();
    for row in rows {
        // The numbers in the row are those of another server.
        if !row.get::<_, bool>("is_here") {
            return Err(ViewsError::SourceAltered { view: row.get("id") });
        }
        let (stamp, current_stamp): (String, String) = (row.get("stamp"), row.get("stamp_now"));
        let snapshot: Option<String> = row.get("snapshot");
        let status = ViewStatus {
            is_claimed: snapshot.is_some(),
            is_suspended: row.get::<_, String>("state") == State::Suspended.as_str(),
            current_snapshot: row.get("seen"),
            shown_snapshot: snapshot.filter(|_| stamp == current_stamp),
            clock: row.get("clock"),
            stamp: current_stamp,
            signature: row.get("signature"),
        };
        statuses.insert(row.get("id"), status);
    }
    Ok(statuses)
}

/// Checks that the views exist, and that their tables are those that were loaded.
///
/// # Errors
/// [`ViewsError::NotFound`] and [`ViewsError::SourceAltered`].
pub(crate) fn check_loaded(
    statuses: &BTreeMap<i64, ViewStatus>,
    views: &[&Refreshable],
) -> Result<(), ViewsError> {
    for view in views {
        let id = view.record.id;
        match statuses.get(&id) {
            None => {
                return Err(ViewsError::NotFound { name: view.record.name.to_string() });
            }
            Some(status) if status.signature != view.signature => {
                return Err(ViewsError::SourceAltered { view: id });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Names and columns of the tables of a view.
///
/// # Errors
/// [`ViewsError::NotFound`].
pub(crate) async fn read_signature(
    client: &impl GenericClient,
    view: i64,
) -> Result<String, ViewsError> {
    let server = Statements::default().server_identity(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&vec![view], &server];
    let row = client.query_one(STATUS, &values).await?;
    Ok(row.get("signature"))
}

/// Stores the fingerprint of views with the status of these rows of [`STATUS`], if the status is
/// still the same after the versions were read.
pub(crate) async fn store_fingerprint(
    client: &impl GenericClient,
    statements: &mut Statements,
    views: &[&Refreshable],
    rows: &[Row],
) -> Result<(), ViewsError> {
    let ids: Vec<i64> = views.iter().map(|view| view.record.id).collect();
    let mut reads = views.iter().flat_map(|view| view.source_views());
    // The catalogue of a view outside of the batch is not part of the fingerprint.
    if reads.any(|read| !ids.contains(&read)) {
        return Ok(());
    }
    let collect_oids = |name: &str| -> Vec<u32> {
        let lists = rows.iter().map(|row| row.get::<_, Option<Vec<u32>>>(name));
        lists.flatten().flatten().collect()
    };
    let (tables, inlined) = (collect_oids("tables"), collect_oids("inlined"));
    let values: [&(dyn ToSql + Sync); 3] = [&ids, &tables, &inlined];
    let versions = statements.query(client, ROW_VERSIONS, &values).await?;
    let server = statements.server_identity(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
    let later_rows = statements.query(client, STATUS, &values).await?;
    let (before, after) = (parse_statuses(rows)?, parse_statuses(&later_rows)?);
    check_loaded(&after, views)?;
    let fingerprint = CatalogFingerprint::new(tables, inlined, &versions, &before, &after);
    if let Some(fingerprint) = fingerprint {
        statements.store_fingerprint(ids, fingerprint);
    }
    Ok(())
}
