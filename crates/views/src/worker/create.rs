//! Creates views: makes one, fills it by its first refresh, and withdraws it if that fails.

use std::sync::Arc;

use egret_base::rhythm::CronSchedule;

use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::error::ViewsError;
use crate::model::{Mode, NewView, Schedule};
use crate::store::query_description::NameResolution;
use crate::store::record::Record;
use crate::store::refresh::request::RefreshOptions;
use crate::store::requests::ResolvedQuery;
use crate::store::{create, registry, remove};

/// Creates a view. It is empty until [`fill_view`] has refreshed it.
///
/// # Errors
/// [`ViewsError`]: nothing has been created then.
pub async fn create_view(
    worker: &Arc<ViewRefreshWorker>,
    session: &mut Session,
    view: &NewView,
    resolved: Option<&ResolvedQuery>,
) -> Result<Record, ViewsError> {
    check_schedule(view.mode, view.schedule.as_ref())?;
    let view = &NewView {
        follow_settings: worker.context.follow_settings(&view.follow_settings)?,
        ..view.clone()
    };
    let max = worker.context.config.views_max;
    if registry::count_views(&session.client).await? >= i64::from(max) {
        return Err(ViewsError::TooManyViews { max });
    }
    worker.adopt_restored(&mut session.client).await?;
    let capture_options = worker.context.config.capture_options();
    // The names of a query that a session has resolved are qualified.
    let name_resolution = match resolved {
        Some(_) => NameResolution::SessionSearchPath,
        None => NameResolution::PublicSchema,
    };
    let mut retries = worker.lock_retry_policy();
    let created = loop {
        let client = &mut session.client;
        match create::create(client, view, resolved, name_resolution, capture_options).await {
            // The first table is waited for. If another cannot be locked, all locks are released
            // and taken again after a pause.
            Err(error) if retries.wait_for_retry(&error).await => {}
            created => break created?,
        }
    };
    tracing::info!(database = worker.database, view = %view.name, "created a view");
    Ok(created.record)
}

/// Reason why the first refresh of a new view failed.
pub(crate) struct FillError(String);

/// Fills a new view by its first refresh. Uses no session while it waits for its turn.
///
/// # Errors
/// [`FillError`]: the view is to be withdrawn.
pub(crate) async fn fill_view(
    worker: &Arc<ViewRefreshWorker>,
    record: &Record,
) -> Result<(), FillError> {
    let reason = match worker.refresh(record.id, RefreshOptions::default()).await {
        Ok(results) => match results.get(&record.id) {
            Some(result) => result.report.error.clone(),
            None => Some("a view that it reads is suspended".to_owned()),
        },
        Err(error) => Some(error.to_string()),
    };
    reason.map_or(Ok(()), |reason| Err(FillError(reason)))
}

/// Removes a view that could not be filled, and returns the error for its creator.
///
/// # Errors
/// The view could not be removed either.
pub(crate) async fn remove_unfilled(
    worker: &Arc<ViewRefreshWorker>,
    record: &Record,
    FillError(reason): FillError,
) -> Result<ViewsError, ViewsError> {
    let mut session = worker.session().await?;
    remove::remove_view(&mut session.client, record, worker.lock_retry_policy()).await?;
    worker.unload(record.id);
    worker.return_session(session);
    Ok(ViewsError::NotFilled { reason })
}

/// Refuses a schedule that the mode does not allow.
///
/// # Errors
/// [`ViewsError::Invalid`] for a schedule in mode immediate, a bad cron expression or a small lag.
pub(crate) fn check_schedule(mode: Mode, schedule: Option<&Schedule>) -> Result<(), ViewsError> {
    let invalid = |reason| ViewsError::Invalid { what: "schedule", reason };
    match schedule {
        Some(_) if mode == Mode::Immediate => Err(invalid(
            "a view in mode immediate cannot have one: it is always up to date".to_owned(),
        )),
        Some(Schedule::Cron(cron)) => match CronSchedule::parse_strict(cron, "") {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid(error.to_string())),
        },
        Some(Schedule::Lag(lag)) if lag.duration().as_millis() < LAG_MIN_MS => {
            Err(invalid(format!("a lag must be at least {LAG_MIN_MS}ms")))
        }
        _ => Ok(()),
    }
}

/// The smallest lag that can be asked for, in milliseconds.
const LAG_MIN_MS: u128 = 10;
