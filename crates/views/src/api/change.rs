//! Alterations of existing views, and the rebuild of their storage.

use egret_postgres::databases::SessionPermit;

use super::find::ViewHandle;
use super::{ViewRef, Views};
use crate::error::ViewsError;
use crate::model::{Alteration, Grants, MakerRights, Mode, ReadableViews, State, ViewReport};
use crate::store::refresh::request::RefreshOptions;
use crate::store::{explain, registry, repair};
use crate::worker::create::check_schedule;

impl Views {
    /// Changes how and when a view is kept fresh.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::Refused`] where its query is only computed as a
    /// whole.
    pub async fn alter(
        &self,
        at: &ViewRef,
        alteration: Alteration,
        readable: ReadableViews,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let found = self.find(at).await?;
        self.check_following(&found.record, &alteration)?;
        let of_refreshes = Alteration {
            kept: None,
            queue: None,
            ..alteration.clone()
        };
        let report = if of_refreshes != Alteration::default() {
            let altering = self.alter_refreshes(found, of_refreshes, readable, &mut permit);
            altering.await?
        } else {
            self.report_changed(found).await?
        };
        if alteration.kept.is_some() || alteration.queue.is_some() {
            self.alter_retention(at, &alteration).await
        } else {
            Ok(report)
        }
    }

    async fn alter_refreshes(
        &self,
        mut found: ViewHandle,
        alteration: Alteration,
        readable: ReadableViews,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        let before = found.record.mode;
        let mode = alteration.mode.unwrap_or(before);
        let alteration = match (before, mode) {
            // A view in mode immediate has no schedule: remove the one that it had.
            (_, Mode::Immediate) if alteration.schedule.is_none() => Alteration {
                schedule: Some(None),
                ..alteration
            },
            _ => alteration,
        };
        let schedule = alteration.schedule.as_ref().and_then(Option::as_ref);
        check_schedule(mode, schedule)?;
        let is_resumed = mode == Mode::Immediate && alteration.is_active == Some(true);
        if before != mode && [before, mode].contains(&Mode::Immediate) || is_resumed {
            let rights = MakerRights {
                grants: Grants::Nothing,
                readable,
            };
            let remaking = self.rebuild(found, Some(&alteration), &rights, permit);
            return remaking.await;
        }
        let client = &mut found.session.client;
        if let Some(mode) = alteration.mode {
            explain::check_mode(client, &found.record, mode).await?;
        }
        registry::alter(client, found.record.id, &alteration).await?;
        self.report_changed(found).await
    }

    /// Rebuilds the storage of a view from its query, fills it, and ends any suspension.
    ///
    /// # Errors
    /// Those of [`Self::create`] and [`Self::show`].
    pub async fn repair(
        &self,
        at: &ViewRef,
        rights: &MakerRights,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let found = self.find(at).await?;
        self.rebuild(found, None, rights, &mut permit).await
    }

    async fn rebuild(
        &self,
        mut found: ViewHandle,
        alteration: Option<&Alteration>,
        rights: &MakerRights,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        found
            .worker
            .adopt_restored(&mut found.session.client)
            .await?;
        let recording = self.context().config.recording();
        let client = &mut found.session.client;
        let retries = found.worker.lock_retry_policy();
        let record = &found.record;
        repair::repair(client, record, alteration, rights, recording, retries).await?;
        found.worker.unload(found.record.id);
        found.worker.discard_costs(found.record.id);
        let record = registry::record_of(&found.session.client, found.record.id).await?;
        let worker = found.worker;
        worker.return_session(found.session);
        if record.state != State::Suspended {
            let refreshing = worker.refresh_record(&record, RefreshOptions::default());
            permit.yield_during(refreshing).await?;
        }
        self.report_changed_view(&worker, &record).await
    }
}
