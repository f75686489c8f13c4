//! A reset that is still to be undone, and the template that it keeps until then.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;

use crate::model::{Branch, TemplateId};

/// A reset that failed and is not undone yet.
pub(crate) struct PendingUndo {
    /// The branch as it was.
    pub(crate) before: Branch,
    pub(crate) had_files: bool,
    _former_template: HeldTemplate,
}

impl PendingUndo {
    pub(crate) fn new(before: Branch, had_files: bool, former_template: HeldTemplate) -> Self {
        Self {
            before,
            had_files,
            _former_template: former_template,
        }
    }
}

/// Keeps a template that no row names: a reset that fails gives it back to its branch.
pub(crate) struct HeldTemplate {
    /// The engine's list of such templates.
    held: Arc<Mutex<Vec<TemplateId>>>,
    id: TemplateId,
}

impl HeldTemplate {
    pub(crate) fn new(held: &Arc<Mutex<Vec<TemplateId>>>, id: TemplateId) -> Self {
        lock(held).push(id);
        Self {
            held: held.clone(),
            id,
        }
    }
}

impl Drop for HeldTemplate {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        if let Some(at) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(at);
        }
    }
}
