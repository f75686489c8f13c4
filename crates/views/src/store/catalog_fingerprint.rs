//! Fingerprints of the catalogue, by which the status of views is known without reading all of it.
//!
//! Every change of the catalogue writes a new version of a row, with another `xmin`. As long as the
//! versions of all rows that [`STATUS`](super::status::STATUS) reads are the same, so is its
//! result. Comparing the versions takes half as long.

use std::collections::BTreeMap;

use egret_postgres::tokio_postgres::Row;

use super::view_status::ViewStatus;
use crate::model::State;

/// Query of the views' state and of the row versions, for [`CatalogFingerprint::statuses`].
pub(crate) const ROW_VERSIONS: &str = include_str!("sql/footing.sql");

/// Row versions at which the status of views was read in full, with that status.
pub(crate) struct CatalogFingerprint {
    /// Oids of the views' tables with their partitions.
    pub tables: Vec<u32>,
    /// Oids of the plain views that they read.
    pub inlined: Vec<u32>,
    versions: String,
    /// Status by the number of the view.
    views: BTreeMap<i64, ViewFingerprint>,
}

struct ViewFingerprint {
    identity: String,
    stamp: String,
    signature: String,
}

impl CatalogFingerprint {
    /// The fingerprint of views by rows of [`ROW_VERSIONS`]; none if the status of one has changed
    /// between `before` and `after`, or is not known.
    pub(crate) fn new(
        tables: Vec<u32>,
        inlined: Vec<u32>,
        rows: &[Row],
        before: &BTreeMap<i64, ViewStatus>,
        after: &BTreeMap<i64, ViewStatus>,
    ) -> Option<Self> {
        let versions = rows.first()?.get("versions");
        let mut views = BTreeMap::new();
        for row in rows {
            let id: i64 = row.get("id");
            let (before, after) = (before.get(&id)?, after.get(&id)?);
            if (&before.stamp, &before.signature) != (&after.stamp, &after.signature) {
                return None;
            }
            let view = ViewFingerprint {
                identity: row.get("identity"),
                stamp: after.stamp.clone(),
                signature: after.signature.clone(),
            };
            views.insert(id, view);
        }
        Some(Self { tables, inlined, versions, views })
    }

    /// The status of the views by rows of [`ROW_VERSIONS`]; none if a row version has changed.
    pub(crate) fn statuses(&self, rows: &[Row]) -> Option<BTreeMap<i64, ViewStatus>> {
        let mut statuses = BTreeMap::new();
        for row in rows {
            let id: i64 = row.get("id");
            let fingerprint = self.views.get(&id)?;
            let (identity, versions): (&str, &str) = (row.get("identity"), row.get("versions"));
            if fingerprint.identity != identity || self.versions != versions {
                return None;
            }
            let snapshot: Option<String> = row.get("snapshot");
            let status = ViewStatus {
                is_claimed: snapshot.is_some(),
                is_suspended: row.get::<_, String>("state") == State::Suspended.as_str(),
                current_snapshot: row.get("seen"),
                shown_snapshot: snapshot
                    .filter(|_| row.get::<_, &str>("stamp") == fingerprint.stamp),
                clock: row.get("clock"),
                stamp: fingerprint.stamp.clone(),
                signature: fingerprint.signature.clone(),
            };
            statuses.insert(id, status);
        }
        (statuses.len() == self.views.len()).then_some(statuses)
    }
}
