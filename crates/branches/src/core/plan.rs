//! What is due: expiry, idle suspend, old templates.
//!
//! A pure function of the registry, the sessions, the free space and the time. Calling it again is
//! harmless: what has been done is no longer due.

use std::time::Duration;

use egret_base::Timestamp;

use crate::config::BranchesConfig;
use crate::model::{Branch, BranchId, BranchState, Template, TemplateId, TemplateState};

/// What is known of one branch.
#[derive(Clone, Debug)]
pub struct BranchFacts<'a> {
    /// Its row in the registry.
    pub branch: &'a Branch,
    /// Number of sessions connected now.
    pub sessions: u32,
    /// Since when it has had no session; `None` while it has some.
    pub idle_since: Option<Timestamp>,
}

/// What the plan depends on.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Every branch, tombstones included.
    pub branches: Vec<BranchFacts<'a>>,
    /// Every template, those being built or removed included.
    pub templates: &'a [Template],
    /// Whether Egret has a source to make templates from.
    pub has_source: bool,
}

/// Something that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The lifetime is over: destroy.
    Expire(BranchId),
    /// It has had no session for long: stop its postmaster.
    Suspend(BranchId),
    /// Delete a template that is not in use.
    PurgeTemplate(TemplateId),
    /// The newest template is too old: make a new one.
    RefreshTemplate,
}

/// Why a branch is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspendReason {
    /// No session for `branches.idle_suspend`.
    Idle,
    /// It takes the room below `branches.free_critical`.
    NoRoom,
    /// It grows while its tenant's branches take more than `branches.tenant_disk_max`.
    TenantDisk,
}

/// Everything that is due at `now`.
pub fn plan(view: &View<'_>, config: &BranchesConfig, now: Timestamp) -> Vec<Command> {
    let mut commands = Vec::new();
    for facts in &view.branches {
        commands.extend(plan_branch(facts, view, config, now));
    }
    commands.extend(plan_templates(view, config, now));
    commands
}

fn plan_branch(
    facts: &BranchFacts<'_>,
    view: &View<'_>,
    config: &BranchesConfig,
    now: Timestamp,
) -> Option<Command> {
    let branch = facts.branch;
    match branch.state {
        BranchState::Destroying
        | BranchState::Creating
        | BranchState::Resetting
        | BranchState::Pooled => return None,
        BranchState::Running | BranchState::Suspended | BranchState::Failed => {}
    }
    // An expired parent waits for the last of its children, so that a reset of theirs still knows
    // where they came from.
    if is_expired(branch, now) && !has_children(view, branch.id) {
        return Some(Command::Expire(branch.id));
    }
    let idle_for = facts.idle_since.map(|since| now.since(since));
    let limit = config.idle_suspend.map(|span| span.duration());
    let idle = matches!((idle_for, limit), (Some(idle), Some(limit)) if idle >= limit);
    (branch.state == BranchState::Running && facts.sessions == 0 && idle)
        .then_some(Command::Suspend(branch.id))
}

/// Whether the lifetime of a branch is over, and nothing keeps it from being destroyed. False for a
/// tombstone, which is destroyed only once.
pub(crate) fn is_expired(branch: &Branch, now: Timestamp) -> bool {
    branch.state != BranchState::Destroying
        && !branch.protected
        && branch.expires_at.is_some_and(|at| at <= now)
}

/// Whether a living branch was made from a template of this one.
pub(crate) fn has_children(view: &View<'_>, id: BranchId) -> bool {
    let templates: Vec<TemplateId> = view
        .templates
        .iter()
        .filter(|template| template.origin_branch == Some(id))
        .map(|template| template.id)
        .collect();
    view.branches.iter().any(|facts| {
        facts.branch.state != BranchState::Destroying && templates.contains(&facts.branch.template)
    })
}

fn plan_templates(view: &View<'_>, config: &BranchesConfig, now: Timestamp) -> Vec<Command> {
    let is_used = |id: TemplateId| view.branches.iter().any(|facts| facts.branch.template == id);
    let mut heads: Vec<&Template> = view
        .templates
        .iter()
        .filter(|template| {
            template.state == TemplateState::Ready && template.origin_branch.is_none()
        })
        .collect();
    heads.sort_by_key(|template| std::cmp::Reverse(template.taken_at));
    let kept_min = config.templates_kept.max(1) as usize;
    let mut commands: Vec<Command> = view
        .templates
        .iter()
        .filter(|template| match template.state {
            TemplateState::Removing => true,
            TemplateState::Building => false,
            TemplateState::Ready => {
                let is_among_newest =
                    heads.iter().take(kept_min).any(|head| head.id == template.id);
                // A template of a branch lives for its children alone.
                !is_among_newest && !is_used(template.id) && is_past_grace_period(template, now)
            }
        })
        .map(|template| Command::PurgeTemplate(template.id))
        .collect();
    if let (Some(age), Some(newest), true) =
        (config.template_refresh, heads.first(), view.has_source)
        && now.since(newest.taken_at) >= age.duration()
        && !view.templates.iter().any(|template| template.state == TemplateState::Building)
    {
        commands.push(Command::RefreshTemplate);
    }
    commands
}

/// A template just built is about to get its first branch.
fn is_past_grace_period(template: &Template, now: Timestamp) -> bool {
    now.since(template.taken_at) > Duration::from_secs(60)
}

#[cfg(test)]
mod tests;
