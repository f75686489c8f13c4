//! Plans a query, and refuses one that cannot be kept fresh.

use super::immediate;
use super::query_description::QueryDescription;
use crate::core::analyse::{analyse, whole};
use crate::core::expression::ColumnId;
use crate::core::functions::refused;
use crate::core::keys::with_keys;
use crate::core::locate::call_of;
use crate::core::prune::prune;
use crate::core::refusal::Refusal;
use crate::core::renumber::renumber;
use crate::core::tree::Plan;
use crate::error::ViewsError;
use crate::model::Mode;

/// A planned view: operators, keys, and properties of its query.
pub struct PlannedView {
    pub plan: Plan,
    /// Keys of the rows of each stage, where they have one.
    pub keys: Vec<Option<Vec<ColumnId>>>,
    /// Whether the query can only be recomputed as a whole.
    pub is_whole: bool,
    /// Whether the query depends on the clock.
    pub has_clock: bool,
}

/// Plans a query. In mode full, a query that cannot be maintained incrementally is planned as a
/// whole.
///
/// # Errors
/// [`ViewsError::Refused`]; [`ViewsError::Unsupported`] in mode immediate, if it changes as time
/// passes.
pub(crate) fn plan_query(
    described: &QueryDescription,
    mode: Mode,
) -> Result<PlannedView, ViewsError> {
    let mut plan = match (analyse(&described.canonical, &described.facts), mode) {
        (Ok(plan), _) => plan,
        (Err(_), Mode::Full) => {
            let columns = described.columns.iter().map(|column| column.name.clone());
            return Ok(PlannedView {
                plan: whole(described.tables.len(), columns),
                keys: vec![None],
                is_whole: true,
                has_clock: described.names_clock(),
            });
        }
        (Err(refusal), _) => return Err(ViewsError::Refused(refusal)),
    };
    let mut keys = with_keys(&mut plan, &|at| described.tables[at].typed_key());
    prune(&mut plan, &keys);
    renumber(&mut plan, &mut keys);
    let has_clock = plan.stages.iter().any(|stage| stage.input.has_clock());
    immediate::check_clock(has_clock, mode)?;
    Ok(PlannedView {
        plan,
        keys,
        is_whole: false,
        has_clock,
    })
}

/// Refuses functions whose results change by themselves. In a view that runs as another role, also
/// functions that are neither PostgreSQL's own nor owned by a superuser: what they leave in the
/// transaction, such as deferred triggers, would run with the rights of the role that refreshes.
///
/// # Errors
/// [`ViewsError::Refused`], [`ViewsError::UntrustedCode`].
pub(crate) fn check_functions(
    described: &QueryDescription,
    is_of_another: bool,
) -> Result<(), ViewsError> {
    let untrusted = described
        .functions
        .iter()
        .find(|function| !function.is_trusted);
    if let (Some(function), true) = (untrusted, is_of_another) {
        let (schema, name) = (&function.schema, &function.name);
        return Err(ViewsError::UntrustedCode {
            what: format!("function `{schema}.{name}`"),
            advice: "use PostgreSQL's own functions, or let a superuser own this one".to_owned(),
        });
    }
    if let (Some((table, function)), true) = (&described.untrusted_code, is_of_another) {
        return Err(ViewsError::UntrustedCode {
            what: format!(
                "function `{function}`, which indexes, constraints or statistics of `{table}` call,"
            ),
            advice: "let a superuser own that function".to_owned(),
        });
    }
    for function in &described.functions {
        let (schema, name) = (&function.schema, &function.name);
        if let Some(advice) = refused(schema, name, &function.volatility) {
            return Err(ViewsError::Refused(Refusal::of_every_mode(
                format!("the function `{schema}.{name}`"),
                call_of(&described.canonical, name),
                advice,
            )));
        }
    }
    Ok(())
}

/// Refuses a query that is run as its owner and names views: another role may replace such a view
/// meanwhile, by one with functions that were not checked.
///
/// # Errors
/// [`ViewsError::Unsupported`].
pub(crate) fn check_whole(
    described: &QueryDescription,
    plan: &PlannedView,
    is_of_another: bool,
) -> Result<(), ViewsError> {
    if plan.is_whole && is_of_another && described.has_untrusted_views {
        Err(ViewsError::Unsupported {
            what: "a query over views that can only be computed as a whole, in a view of another role,"
                .to_owned(),
            advice: "read the tables instead".to_owned(),
        })
    } else {
        Ok(())
    }
}
