//! A reset that is still to be undone, and the template that it keeps until then.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;

use crate::model::{Branch, TemplateId};

/// A reset that failed and is not undone yet.
pub(crate) struct PendingUndo {
    /// The branch as it was.
    pub(crate) branch_before: Branch,
    pub(crate) had_files: bool,
    _former_template: HeldTemplate,
}

impl PendingUndo {
    pub(crate) fn new(
        branch_before: Branch,
        had_files: bool,
        former_template: HeldTemplate,
    ) -> Self {
        Self { branch_before, had_files, _former_template: former_template }
    }
}

/// Keeps a template that no row names: a reset that fails gives it back to its branch.
pub(crate) struct HeldTemplate {
    /// The engine's list of such templates.
    held_templates: Arc<Mutex<Vec<TemplateId>>>,
    id: TemplateId,
}

impl HeldTemplate {
    pub(crate) fn new(held_templates: &Arc<Mutex<Vec<TemplateId>>>, id: TemplateId) -> Self {
        lock(held_templates).push(id);
        Self { held_templates: held_templates.clone(), id }
    }
}

impl Drop for HeldTemplate {
    fn drop(&mut self) {
        let mut held_templates = lock(&self.held_templates);
        if let Some(index) = held_templates.iter().position(|id| *id == self.id) {
            held_templates.swap_remove(index);
        }
    }
}
