//! Missing indexes in the report of a view.

use crate::error::ViewsError;
use crate::model::{Advice, Mode, ViewReport};
use crate::store::advice::advise_view;
use crate::store::registry;
use crate::worker::refresh_worker::ViewRefreshWorker;
use crate::worker::session::Session;

/// Adds the advice to a report. A failure to find it is only logged.
pub(super) async fn with_advice(worker: &ViewRefreshWorker, report: ViewReport) -> ViewReport {
    let advice = match find_advice(worker, &report).await {
        Ok(advice) => advice,
        Err(error) => {
            let (database, view) = (&worker.database, &report.name);
            tracing::debug!(database, %view, %error, "cannot determine the missing indexes of a view");
            None
        }
    };
    ViewReport { advice, ..report }
}

async fn find_advice(
    worker: &ViewRefreshWorker,
    report: &ViewReport,
) -> Result<Option<Vec<Advice>>, ViewsError> {
    if report.mode == Mode::Full {
        return Ok(Some(Vec::new()));
    }
    let mut session = worker.session().await?;
    let Session { client, statements } = &mut session;
    let Some(record) = registry::find_record(client, statements, &report.name).await? else {
        return Ok(None);
    };
    let view = worker.load_view(client, record.id).await?;
    let advice = advise_view(client, &view).await?;
    worker.return_session(session);
    Ok(Some(advice))
}
