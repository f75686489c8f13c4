//! How views stand, told by what little says that nothing has happened to their tables since that was last looked at as a whole.
//!
//! Whatever is altered in the catalogue gets a new version of its row, with another `xmin`: as long as the versions of all rows that
//! [`STANDING`](super::standing::STANDING) reads are the same, so is what it makes of them. To look at them takes half as long.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row};

use super::refresh::Refreshable;
use super::standing::{STANDING, Standing, check, standing_of};
use super::statements::Statements;
use crate::error::ViewsError;
use crate::model::State;

/// How views stand and the versions of what matters for that, as rows that [`Footing::standing`] reads.
pub const FOOTING: &str = include_str!("sql/footing.sql");

/// What was found when how views stand was looked at as a whole.
pub struct Footing {
    /// Their tables with their partitions, by oid.
    pub tables: Vec<u32>,
    /// The plain views that they read.
    pub inlined: Vec<u32>,
    versions: String,
    /// By the number of a view.
    views: BTreeMap<i64, Found>,
}

struct Found {
    identity: String,
    stamp: String,
    signature: String,
}

impl Footing {
    /// How the views stand, by rows of [`FOOTING`]; none where something has changed that matters for that.
    pub fn standing(&self, rows: &[Row]) -> Option<BTreeMap<i64, Standing>> {
        let mut all = BTreeMap::new();
        for row in rows {
            let id: i64 = row.get("id");
            let found = self.views.get(&id)?;
            let (identity, versions): (&str, &str) = (row.get("identity"), row.get("versions"));
            if found.identity != identity || self.versions != versions {
                return None;
            }
            let snapshot: Option<String> = row.get("snapshot");
            let standing = Standing {
                is_claimed: snapshot.is_some(),
                is_suspended: row.get::<_, String>("state") == State::Suspended.as_str(),
                seen: row.get("seen"),
                reached: snapshot.filter(|_| row.get::<_, &str>("stamp") == found.stamp),
                clock: row.get("clock"),
                stamp: found.stamp.clone(),
                signature: found.signature.clone(),
            };
            all.insert(id, standing);
        }
        (all.len() == self.views.len()).then_some(all)
    }
}

/// Remembers what there is now of views that stand as these rows of [`STANDING`] say, if they still do so after that was looked at.
///
/// # Errors
/// What the server says.
pub async fn learn(
    client: &impl GenericClient,
    statements: &mut Statements,
    views: &[&Refreshable],
    rows: &[Row],
) -> Result<(), ViewsError> {
    let ids: Vec<i64> = views.iter().map(|view| view.record.id).collect();
    let mut reads = views.iter().flat_map(|view| view.views());
    // What such a view is, is not looked at.
    if reads.any(|read| !ids.contains(&read)) {
        return Ok(());
    }
    let list = |name: &str| -> Vec<u32> {
        let lists = rows.iter().map(|row| row.get::<_, Option<Vec<u32>>>(name));
        lists.flatten().flatten().collect()
    };
    let (tables, inlined) = (list("tables"), list("inlined"));
    let values: [&(dyn ToSql + Sync); 3] = [&ids, &tables, &inlined];
    let footing = statements.query(client, FOOTING, &values).await?;
    let server = statements.server(client).await?;
    let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
    let again = statements.query(client, STANDING, &values).await?;
    let (before, after) = (standing_of(rows)?, standing_of(&again)?);
    check(&after, views)?;
    let Some(versions) = footing.first().map(|row| row.get("versions")) else {
        return Ok(());
    };
    let mut found = BTreeMap::new();
    for row in &footing {
        let id: i64 = row.get("id");
        let (Some(before), Some(after)) = (before.get(&id), after.get(&id)) else {
            return Ok(());
        };
        if (&before.stamp, &before.signature) != (&after.stamp, &after.signature) {
            return Ok(());
        }
        let one = Found {
            identity: row.get("identity"),
            stamp: after.stamp.clone(),
            signature: after.signature.clone(),
        };
        found.insert(id, one);
    }
    let footing = Footing {
        tables,
        inlined,
        versions,
        views: found,
    };
    statements.keep_footing(ids, footing);
    Ok(())
}
