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
        view_ref: &ViewRef,
        alteration: Alteration,
        readable: ReadableViews,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        self.check_following(&handle.record, &alteration)?;
        let refresh_alteration = Alteration { retention: None, queue: None, ..alteration.clone() };
        let report = if refresh_alteration != Alteration::default() {
            let altered = self.alter_refreshes(handle, refresh_alteration, readable, &mut permit);
            altered.await?
        } else {
            self.report_changed(handle).await?
        };
        if alteration.retention.is_some() || alteration.queue.is_some() {
            self.alter_retention(view_ref, &alteration).await
        } else {
            Ok(report)
        }
    }

    async fn alter_refreshes(
        &self,
        mut handle: ViewHandle,
        alteration: Alteration,
        readable: ReadableViews,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        let old_mode = handle.record.mode;
        let mode = alteration.mode.unwrap_or(old_mode);
        let alteration = match (old_mode, mode) {
            // A view in mode immediate has no schedule: remove the one that it had.
            (_, Mode::Immediate) if alteration.schedule.is_none() => {
                Alteration { schedule: Some(None), ..alteration }
            }
            _ => alteration,
        };
        let schedule = alteration.schedule.as_ref().and_then(Option::as_ref);
        check_schedule(mode, schedule)?;
        let is_resumed = mode == Mode::Immediate && alteration.is_active == Some(true);
        if old_mode != mode && [old_mode, mode].contains(&Mode::Immediate) || is_resumed {
            let rights = MakerRights { grants: Grants::Nothing, readable };
            let rebuilt = self.rebuild(handle, Some(&alteration), &rights, permit);
            return rebuilt.await;
        }
        let client = &mut handle.session.client;
        if let Some(mode) = alteration.mode {
            explain::check_can_use_mode(client, &handle.record, mode).await?;
        }
        registry::store_alteration(client, handle.record.id, &alteration).await?;
        self.report_changed(handle).await
    }

    /// Rebuilds the storage of a view from its query, fills it, and ends any suspension.
    ///
    /// # Errors
    /// Those of [`Self::create`] and [`Self::show`].
    pub async fn repair(
        &self,
        view_ref: &ViewRef,
        rights: &MakerRights,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        self.rebuild(handle, None, rights, &mut permit).await
    }

    async fn rebuild(
        &self,
        mut handle: ViewHandle,
        alteration: Option<&Alteration>,
        rights: &MakerRights,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        handle.worker.adopt_restored(&mut handle.session.client).await?;
        let capture_options = self.context().config.capture_options();
        let client = &mut handle.session.client;
        let retries = handle.worker.lock_retry_policy();
        let record = &handle.record;
        repair::repair_view(client, record, alteration, rights, capture_options, retries).await?;
        handle.worker.unload(handle.record.id);
        handle.worker.discard_costs(handle.record.id);
        let record = registry::read_record(&handle.session.client, handle.record.id).await?;
        let worker = handle.worker;
        worker.return_session(handle.session);
        if record.state != State::Suspended {
            let refreshing = worker.refresh_record(&record, RefreshOptions::default());
            permit.yield_during(refreshing).await?;
        }
        self.report_changed_view(&worker, &record).await
    }
}
