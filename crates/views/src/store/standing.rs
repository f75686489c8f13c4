//! How views stand before and after a refresh.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::refresh::Refreshable;
use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::State;

/// How views stand, as rows that [`standing_of`] reads.
pub const STANDING: &str = include_str!("sql/standing.sql");

/// How far a view has come, as its statements are told.
#[derive(Clone, Copy, Debug)]
pub struct Frontier<'a> {
    /// To which snapshot, as `pg_snapshot` is written, …
    pub snapshot: &'a str,
    /// … and at which moment, to the microsecond, where that matters.
    pub clock: Option<&'a str>,
}

/// How a view stands before a refresh.
pub struct Standing {
    /// How far it has come; none when it is to be computed anew.
    pub reached: Option<String>,
    /// When it was there, where what it shows changes as time passes.
    pub clock: Option<String>,
    /// The server, the tables, their partitions and the files of all.
    pub stamp: String,
    /// The names and columns of the tables.
    pub signature: String,
    /// Whether changes are kept for it: it has come to somewhere, or is claimed.
    pub is_claimed: bool,
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// The snapshot in which all this was seen.
    pub seen: String,
}

impl Standing {
    /// How far it has come; none when it is to be computed anew.
    pub fn frontier(&self) -> Option<Frontier<'_>> {
        Some(Frontier {
            snapshot: self.reached.as_deref()?,
            clock: self.clock.as_deref(),
        })
    }
}

/// How views stand. One of a database that was restored, or whose tables are not what they were when it was loaded is to be loaded again.
///
/// # Errors
/// [`ViewsError::NotFound`] and [`ViewsError::SourceAltered`]; what the server says.
pub async fn standing(
    client: &impl GenericClient,
    statements: &mut Statements,
    views: &[&Refreshable],
) -> Result<BTreeMap<i64, Standing>, ViewsError> {
    let ids: Vec<i64> = views.iter().map(|view| view.record.id).collect();
    let server = statements.server(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
    let rows = statements.query(client, STANDING, &values).await?;
    let all = standing_of(&rows)?;
    check(&all, views)?;
    Ok(all)
}

/// How views stand, by the rows of [`STANDING`].
///
/// # Errors
/// [`ViewsError::SourceAltered`] of one that is another server's.
pub fn standing_of(rows: &[Row]) -> Result<BTreeMap<i64, Standing>, ViewsError> {
    let mut all = BTreeMap::new();
    for row in rows {
        // Of another server, whose numbers mean something else here.
        if !row.get::<_, bool>("is_here") {
            return Err(ViewsError::SourceAltered {
                view: row.get("id"),
            });
        }
        let (stamp, now): (String, String) = (row.get("stamp"), row.get("stamp_now"));
        let snapshot: Option<String> = row.get("snapshot");
        let standing = Standing {
            is_claimed: snapshot.is_some(),
            is_suspended: row.get::<_, String>("state") == State::Suspended.as_str(),
            seen: row.get("seen"),
            reached: snapshot.filter(|_| stamp == now),
            clock: row.get("clock"),
            stamp: now,
            signature: row.get("signature"),
        };
        all.insert(row.get("id"), standing);
    }
    Ok(all)
}

/// Fails where one of these views is gone, or not what it was when it was loaded.
///
/// # Errors
/// [`ViewsError::NotFound`] and [`ViewsError::SourceAltered`].
pub fn check(all: &BTreeMap<i64, Standing>, views: &[&Refreshable]) -> Result<(), ViewsError> {
    for view in views {
        let id = view.record.id;
        match all.get(&id) {
            None => {
                return Err(ViewsError::NotFound {
                    name: view.record.name.to_string(),
                });
            }
            Some(standing) if standing.signature != view.signature => {
                return Err(ViewsError::SourceAltered { view: id });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The names and columns of the tables of a view.
///
/// # Errors
/// [`ViewsError::NotFound`]; what the server says.
pub async fn signature(client: &impl GenericClient, view: i64) -> Result<String, ViewsError> {
    let server = Statements::default().server(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&vec![view], &server];
    let row = client.query_one(STANDING, &values).await?;
    Ok(row.get("signature"))
}
