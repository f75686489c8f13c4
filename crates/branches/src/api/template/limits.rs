//! Limits on templates: how many there may be, in all and for a tenant, how much those of a tenant
//! may take, and how many are built for one at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_base::Limit;
use egret_base::sync::lock;
use tokio::sync::Semaphore;

use crate::engine::Inner;
use crate::error::BranchesError;
use crate::model::{Branch, BranchState, TemplateId};

impl Inner {
    /// What one tenant's builds take one of each.
    pub(super) fn tenant_build_permits(&self, tenant: &str) -> Arc<Semaphore> {
        let builds_max = self.config.tenant_builds_max.max(1) as usize;
        lock(&self.tenant_build_permits)
            .entry(tenant.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(builds_max)))
            .clone()
    }

    /// Refuses when there are as many templates as there may be. Each branch of a branch needs one,
    /// which lives as long as its branches do.
    pub(super) fn check_template_count(&self) -> Result<(), BranchesError> {
        let max = self.config.templates_max;
        let templates = self.state()?.registry.templates().len() as u64;
        let limit = Limit::new("branches.templates_max", u64::from(max));
        limit.check(templates + 1).map_err(|_| BranchesError::TemplatesFull { max })
    }

    /// Refuses one more template where the branches of a tenant hold, or were the origin of, as
    /// many as they may.
    pub(super) fn check_tenant_templates(&self, tenant: &str) -> Result<(), BranchesError> {
        let registry = &self.state()?.registry;
        let is_living = |branch: &Branch| {
            branch.tenant == tenant
                && !matches!(branch.state, BranchState::Destroying | BranchState::Pooled)
        };
        let held = registry.branches_where(is_living);
        let mut templates: BTreeSet<TemplateId> =
            held.iter().map(|branch| branch.template).collect();
        let all = registry.templates().into_iter();
        let tenant_templates = all.filter(|template| template.tenant.as_deref() == Some(tenant));
        templates.extend(tenant_templates.map(|template| template.id));
        let max = self.config.tenant_templates_max;
        let limit = Limit::new("branches.tenant_templates_max", u64::from(max));
        limit
            .check(templates.len() as u64 + 1)
            .map_err(|_| BranchesError::TenantTemplatesFull { max })
    }

    /// Refuses a template of a branch whose copy has no room on the volume or within the share of
    /// the branch's tenant.
    pub(super) async fn check_room_of_tenant(
        self: &Arc<Self>,
        branch: &Branch,
    ) -> Result<(), BranchesError> {
        match self.check_room_for_copy(&self.paths.branch(branch.id)).await? {
            // It shares its blocks with the branch.
            0 => Ok(()),
            copied => self.check_tenant_room(&branch.tenant, copied).await,
        }
    }
}
