//! Changes of views that are there: how they are kept fresh, and their storage made anew.

use egret_postgres::databases::SessionPermit;

use super::find::Found;
use super::make::check_schedule;
use super::{Address, Views, refreshed};
use crate::error::ViewsError;
use crate::model::{Alteration, Grants, MakerRights, Mode, ReadableViews, State, ViewReport};
use crate::store::refresh::Besides;
use crate::store::{explain, registry, repair};

impl Views {
    /// Changes how and when a view is kept fresh.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::Refused`] where its query is only computed as a whole.
    pub async fn alter(
        &self,
        at: &Address,
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
        let report = match of_refreshes == Alteration::default() {
            false => {
                let altering = self.alter_refreshes(found, of_refreshes, readable, &mut permit);
                altering.await?
            }
            true => self.changed(found).await?,
        };
        match alteration.kept.is_some() || alteration.queue.is_some() {
            true => self.keep_changes(at, &alteration).await,
            false => Ok(report),
        }
    }

    async fn alter_refreshes(
        &self,
        mut found: Found,
        alteration: Alteration,
        readable: ReadableViews,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        let before = found.record.mode;
        let mode = alteration.mode.unwrap_or(before);
        let alteration = match (before, mode) {
            // Whatever it had is of no use any more.
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
            let remaking = self.remake(found, Some(&alteration), &rights, permit);
            return remaking.await;
        }
        let client = &mut found.session.client;
        if let Some(mode) = alteration.mode {
            explain::check_mode(client, &found.record, mode).await?;
        }
        registry::alter(client, found.record.id, &alteration).await?;
        self.changed(found).await
    }

    /// Makes the storage of a view anew from its query, fills it, and ends any suspension.
    ///
    /// # Errors
    /// Those of [`Self::create`] and [`Self::show`].
    pub async fn repair(
        &self,
        at: &Address,
        rights: &MakerRights,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let found = self.find(at).await?;
        self.remake(found, None, rights, &mut permit).await
    }

    async fn remake(
        &self,
        mut found: Found,
        alteration: Option<&Alteration>,
        rights: &MakerRights,
        permit: &mut SessionPermit,
    ) -> Result<ViewReport, ViewsError> {
        found.keeper.settle(&mut found.session.client).await?;
        let recording = self.inner.shared.config.recording();
        let client = &mut found.session.client;
        let bounds = (recording, found.keeper.patience());
        repair::repair(client, &found.record, alteration, rights, bounds).await?;
        found.keeper.unload(found.record.id);
        found.keeper.forget_costs(found.record.id);
        let record = registry::record_of(&found.session.client, found.record.id).await?;
        let keeper = found.keeper;
        keeper.give_back(found.session);
        if record.state != State::Suspended {
            let refreshing = refreshed(&keeper, &record, Besides::default());
            permit.yield_during(refreshing).await?;
        }
        self.show_changed(&keeper, &record).await
    }
}
