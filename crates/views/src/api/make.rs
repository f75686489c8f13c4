//! Makes views, and refreshes one of them when that is asked for.

use std::sync::Arc;

use egret_base::rhythm::Rhythm;

use super::usual;
use crate::error::ViewsError;
use crate::model::{Mode, NewView, RefreshReport, Schedule, State};
use crate::store::describe::Names;
use crate::store::refresh::Besides;
use crate::store::registry::{self, Record};
use crate::store::requests::Resolved;
use crate::store::{create, remove};
use crate::worker::keeper::Keeper;
use crate::worker::session::Session;

/// Makes a view. It is empty until [`fill`] has refreshed it.
///
/// # Errors
/// [`ViewsError`]: nothing is left then.
pub async fn make(
    keeper: &Arc<Keeper>,
    session: &mut Session,
    view: &NewView,
    resolved: Option<&Resolved>,
) -> Result<Record, ViewsError> {
    check_schedule(view.mode, view.schedule.as_ref())?;
    let view = &NewView {
        following: usual(&keeper.shared, &view.following)?,
        ..view.clone()
    };
    let max = keeper.shared.config.views_max;
    if registry::count(&session.client).await? >= i64::from(max) {
        return Err(ViewsError::TooMany { max });
    }
    keeper.settle(&mut session.client).await?;
    let recording = keeper.shared.config.recording();
    // What a session has resolved is found by its full names.
    let names = match resolved {
        Some(_) => Names::OfSession,
        None => Names::Typed,
    };
    let mut patience = keeper.patience();
    let made = loop {
        let client = &mut session.client;
        match create::create(client, view, (resolved, names), recording).await {
            // The first table is waited for; where others are not to be had, all are given up for a moment.
            Err(error) if patience.has_more_for(&error).await => {}
            made => break made?,
        }
    };
    tracing::info!(database = keeper.database, view = %view.name, "a view is made");
    Ok(made.record)
}

/// Why a view that was just made is empty.
pub struct Unfilled(String);

/// Fills a view that was just made. Only as many as refreshes may run have a session meanwhile.
///
/// # Errors
/// [`Unfilled`]: it is to be withdrawn.
pub async fn fill(keeper: &Arc<Keeper>, made: &Record) -> Result<(), Unfilled> {
    let problem = match keeper.refresh(made.id, Besides::default()).await {
        Ok(reports) => match reports.get(&made.id) {
            Some((report, _)) => report.error.clone(),
            None => Some("a view that it reads is suspended".to_owned()),
        },
        Err(error) => Some(error.to_string()),
    };
    problem.map_or(Ok(()), |reason| Err(Unfilled(reason)))
}

/// Removes a view that could not be filled, and returns the error that its maker is answered.
///
/// # Errors
/// Why it could not be removed either.
pub async fn withdraw(
    keeper: &Arc<Keeper>,
    made: &Record,
    Unfilled(reason): Unfilled,
) -> Result<ViewsError, ViewsError> {
    let mut session = keeper.session().await?;
    remove::remove(&mut session.client, made, keeper.patience()).await?;
    keeper.unload(made.id);
    keeper.give_back(session);
    Ok(ViewsError::NotFilled { reason })
}

/// Refreshes a view, and says what became of it.
///
/// # Errors
/// [`ViewsError::Failed`] and [`ViewsError::Suspended`]; those of a refresh.
pub async fn refreshed(
    keeper: &Arc<Keeper>,
    record: &Record,
    besides: Besides,
) -> Result<(RefreshReport, Option<(i64, i64, i64)>), ViewsError> {
    let name = record.name.to_string();
    if record.state == State::Suspended {
        return Err(ViewsError::Suspended {
            name,
            reason: record.reason.clone().unwrap_or_default(),
        });
    }
    let mut reports = keeper.refresh(record.id, besides).await?;
    match reports.remove(&record.id) {
        None => Err(ViewsError::Suspended {
            name,
            reason: "a view that it reads is".to_owned(),
        }),
        Some((report, compared)) => match report.error.clone() {
            Some(reason) => Err(ViewsError::Failed {
                name,
                reason,
                is_suspended: is_suspended(keeper, record.id).await,
            }),
            None => Ok((report, compared)),
        },
    }
}

/// Whether a view is suspended by now; false where that cannot be told.
async fn is_suspended(keeper: &Keeper, view: i64) -> bool {
    let Ok(session) = keeper.session().await else {
        return false;
    };
    let Ok(now) = registry::record_of(&session.client, view).await else {
        return false;
    };
    keeper.give_back(session);
    now.state == State::Suspended
}

/// Refuses a schedule that a view in a mode cannot have.
///
/// # Errors
/// [`ViewsError::Invalid`].
pub fn check_schedule(mode: Mode, schedule: Option<&Schedule>) -> Result<(), ViewsError> {
    let invalid = |reason| ViewsError::Invalid {
        what: "schedule",
        reason,
    };
    match schedule {
        Some(_) if mode == Mode::Immediate => Err(invalid(
            "a view in mode immediate has none: it is always up to date".to_owned(),
        )),
        Some(Schedule::Cron(cron)) => match Rhythm::of_new(cron, "") {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid(error.to_string())),
        },
        Some(Schedule::Lag(lag)) if lag.duration().as_millis() < LAG_MIN_MS => {
            Err(invalid(format!("a lag is at least {LAG_MIN_MS}ms")))
        }
        _ => Ok(()),
    }
}

/// The smallest lag that can be asked for, in milliseconds.
const LAG_MIN_MS: u128 = 10;
