//! What is advised for a view that is looked at.

use crate::error::ViewsError;
use crate::model::{Advice, Mode, ViewReport};
use crate::store::advice::of_view;
use crate::store::registry;
use crate::worker::keeper::Keeper;
use crate::worker::session::Session;

/// The report with what is advised. A view is looked at whether that can be said or not.
pub(super) async fn advised(keeper: &Keeper, report: ViewReport) -> ViewReport {
    let advice = match looked_for(keeper, &report).await {
        Ok(advice) => advice,
        Err(error) => {
            let (database, view) = (&keeper.database, &report.name);
            tracing::debug!(database, %view, %error, "it cannot be said which indexes it lacks");
            None
        }
    };
    ViewReport { advice, ..report }
}

async fn looked_for(
    keeper: &Keeper,
    report: &ViewReport,
) -> Result<Option<Vec<Advice>>, ViewsError> {
    if report.mode == Mode::Full {
        return Ok(Some(Vec::new()));
    }
    let mut session = keeper.session().await?;
    let Session { client, statements } = &mut session;
    let Some(record) = registry::find(client, statements, &report.name).await? else {
        return Ok(None);
    };
    let view = keeper.loaded(client, record.id).await?;
    let advice = of_view(client, &view).await?;
    keeper.give_back(session);
    Ok(Some(advice))
}
