//! Plans a query, and refuses one that cannot be kept fresh.

use super::immediate;
use super::query_description::QueryDescription;
use crate::core::analyse::{analyse, plan_whole_query};
use crate::core::expression::ColumnId;
use crate::core::functions::refusal_advice;
use crate::core::keys::add_keys;
use crate::core::locate::find_call;
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
    pub is_full_only: bool,
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
    description: &QueryDescription,
    mode: Mode,
) -> Result<PlannedView, ViewsError> {
    let mut plan = match (analyse(&description.canonical, &description.facts), mode) {
        (Ok(plan), _) => plan,
        (Err(_), Mode::Full) => {
            let columns = description.columns.iter().map(|column| column.name.clone());
            return Ok(PlannedView {
                plan: plan_whole_query(description.tables.len(), columns),
                keys: vec![None],
                is_full_only: true,
                has_clock: description.calls_clock(),
            });
        }
        (Err(refusal), _) => return Err(ViewsError::Refused(refusal)),
    };
    let mut keys = add_keys(&mut plan, &|table_index| description.tables[table_index].typed_key());
    prune(&mut plan, &keys);
    renumber(&mut plan, &mut keys);
    let has_clock = plan.stages.iter().any(|stage| stage.input.has_clock());
    immediate::check_clock_dependence(has_clock, mode)?;
    Ok(PlannedView { plan, keys, is_full_only: false, has_clock })
}

/// Refuses functions whose results change by themselves. In a view that runs as another role, also
/// functions that are neither PostgreSQL's own nor owned by a superuser: what they leave in the
/// transaction, such as deferred triggers, would run with the rights of the role that refreshes.
///
/// # Errors
/// [`ViewsError::Refused`], [`ViewsError::UntrustedCode`].
pub(crate) fn check_functions(
    description: &QueryDescription,
    has_other_owner: bool,
) -> Result<(), ViewsError> {
    let untrusted = description.functions.iter().find(|function| !function.is_trusted);
    if let (Some(function), true) = (untrusted, has_other_owner) {
        let (schema, name) = (&function.schema, &function.name);
        return Err(ViewsError::UntrustedCode {
            what: format!("function `{schema}.{name}`"),
            advice: "use PostgreSQL's own functions, or let a superuser own this one".to_owned(),
        });
    }
    if let (Some((table, function)), true) = (&description.untrusted_code, has_other_owner) {
        return Err(ViewsError::UntrustedCode {
            what: format!(
                "function `{function}`, which indexes, constraints or statistics of `{table}` call,"
            ),
            advice: "let a superuser own that function".to_owned(),
        });
    }
    for function in &description.functions {
        let (schema, name) = (&function.schema, &function.name);
        if let Some(advice) = refusal_advice(schema, name, &function.volatility) {
            return Err(ViewsError::Refused(Refusal::in_every_mode(
                format!("the function `{schema}.{name}`"),
                find_call(&description.canonical, name),
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
pub(crate) fn check_full_only(
    description: &QueryDescription,
    plan: &PlannedView,
    has_other_owner: bool,
) -> Result<(), ViewsError> {
    if plan.is_full_only && has_other_owner && description.has_untrusted_views {
        Err(ViewsError::Unsupported {
            what: "a query over views that can only be computed as a whole, in a view of another role,"
                .to_owned(),
            advice: "read the tables instead".to_owned(),
        })
    } else {
        Ok(())
    }
}
