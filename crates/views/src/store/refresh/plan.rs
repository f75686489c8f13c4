//! How a view is refreshed: the strategy, and the changes of its sources.

use std::collections::BTreeMap;

use super::context::RefreshContext;
use crate::core::capture::changes_cte;
use crate::core::sql::{FRONTIER_CTE, SourceSql};
use crate::core::strategy::{CostInputs, CostModel, RefreshStrategy, choose_strategy};
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::store::refreshable::{Refreshable, ViewSource};
use crate::store::view_status::Frontier;

/// The plan of a view's refresh.
pub(super) struct RefreshPlan {
    /// The strategy; none if there is nothing to do.
    pub strategy: Option<RefreshStrategy>,
    /// Why it was chosen, in words.
    pub reason: String,
    /// Recorded changes that are applied.
    pub changes: i64,
    /// The sources with their changes.
    pub sources: BTreeMap<Source, SourceSql>,
    /// The common table expressions that define these changes.
    pub ctes: Vec<String>,
    has_break: bool,
}

impl RefreshPlan {
    /// Plans the refresh of a view. One without a refresh point is rebuilt.
    ///
    /// # Errors
    /// [`ViewsError::FuseBlown`] with more changes than allowed.
    pub(super) fn new(
        context: &RefreshContext<'_>,
        view: &Refreshable,
        frontier: Option<Frontier<'_>>,
    ) -> Result<Self, ViewsError> {
        let mut plan = Self {
            strategy: None,
            reason: String::new(),
            changes: 0,
            sources: view.materialized_view.sources.clone(),
            ctes: vec![FRONTIER_CTE.to_owned()],
            has_break: false,
        };
        let Some(frontier) = frontier else {
            plan.strategy = Some(RefreshStrategy::Full);
            plan.reason = "it is computed for the first time, or rebuilt".to_owned();
            return Ok(plan);
        };
        if view.record.immediate_view().is_some() {
            // It is fresh by its triggers. Recorded changes are left from transactions in which a
            // trigger did not run to its end.
            return Ok(plan);
        }
        let is_changed = plan.add_changes(context, view) || view.materialized_view.has_clock;
        if !is_changed && !plan.has_break {
            return Ok(plan);
        }
        context.limits.check_changes(plan.changes)?;
        let costs = context.costs.get(&view.record.id);
        let (strategy, reason) = plan.choose_strategy(view, frontier, costs);
        plan.strategy = Some(strategy);
        plan.reason = reason;
        Ok(plan)
    }

    /// Adds the changes of the view's sources. Returns whether there are any.
    fn add_changes(&mut self, context: &RefreshContext<'_>, view: &Refreshable) -> bool {
        let id = view.record.id;
        let mut is_changed = false;
        for (source_index, read) in view.sources.iter().enumerate() {
            let source = Source::Table(source_index);
            let Some(sql) = self.sources.get_mut(&source) else {
                continue;
            };
            match read {
                ViewSource::Table { capture: captured, .. } => {
                    let counts =
                        context.counts.get(&(id, source_index)).copied().unwrap_or_default();
                    self.changes += counts.rows;
                    self.has_break |= counts.breaks > 0;
                    if counts.rows > 0 {
                        sql.expected_changes = round_up_to_power_of_eight(counts.rows);
                        sql.is_consolidated =
                            !view.materialized_view.consolidates_changes_of(source);
                        let from = captured.select_unapplied(sql.expected_changes);
                        let changes = if sql.is_consolidated {
                            captured.select_consolidated(&from)
                        } else {
                            captured.select_recorded(&from)
                        };
                        let name = format!("egret_changes_{source_index}");
                        self.ctes.push(changes_cte(&name, &changes, sql.is_consolidated));
                        sql.changes = Some(name);
                    }
                }
                ViewSource::View(view) => {
                    if let Some(delta) = context.deltas.views.get(view).cloned().flatten() {
                        self.changes += delta.rows;
                        sql.expected_changes = round_up_to_power_of_eight(delta.rows);
                        sql.changes = Some(delta.sql);
                    }
                }
            }
            is_changed |= sql.changes.is_some();
        }
        is_changed
    }

    /// Chooses the strategy, with its reason in words.
    fn choose_strategy(
        &self,
        view: &Refreshable,
        frontier: Frontier<'_>,
        costs: Option<&CostModel>,
    ) -> (RefreshStrategy, String) {
        let full = |reason: &str| (RefreshStrategy::Full, reason.to_owned());
        if view.materialized_view.has_clock && frontier.clock.is_none() {
            return full("the time of its last refresh is unknown");
        }
        if self.has_break {
            return full("a table was truncated or altered, which is not recorded by row");
        }
        if view.materialized_view.is_full_only {
            return full("the query can only be computed as a whole");
        }
        if costs.is_some_and(|costs| costs.is_incremental_barred) {
            return full("the changes could not be computed incrementally");
        }
        let inputs =
            CostInputs { mode: view.record.mode, changes: self.changes, rows: view.source_rows };
        choose_strategy(inputs, costs.unwrap_or(&CostModel::default()))
    }
}

/// Rounds up to a power of eight, so that few distinct statements are prepared.
fn round_up_to_power_of_eight(rows: i64) -> u64 {
    let bits = u64::BITS - u64::try_from(rows).unwrap_or(0).leading_zeros();
    1 << (bits.div_ceil(3) * 3).min(u64::BITS - 1)
}
