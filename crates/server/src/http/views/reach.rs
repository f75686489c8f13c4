//! The rights of a caller's scopes to views: what a new view may read, and which names responses
//! may contain.

use std::sync::Arc;

use egret_views::ViewsError;
use egret_views::error::Dependent;
use egret_views::model::{Grants, MakerRights, ReadableViews, ViewName, ViewReport};

use crate::access::{Caller, part_name};
use crate::tokens::{ADMIN, Reach};

const AREA: &str = "views";

/// The views that a caller may read.
pub(super) fn readable_views(caller: &Caller) -> ReadableViews {
    match caller.reach(AREA, &["read"]) {
        Reach::All => ReadableViews::All,
        reach => ReadableViews::Matching(Arc::new(move |name: &ViewName| {
            reach.covers(&part_name(AREA, &name.to_string()))
        })),
    }
}

/// What a view that the caller creates may read. Only an administrator may grant `egret_views`
/// access to users' tables.
pub(super) fn maker_rights(caller: &Caller) -> MakerRights {
    let grants = if caller.has_scope(ADMIN) { Grants::SelectOnSources } else { Grants::Nothing };
    MakerRights { grants, readable: readable_views(caller) }
}

fn is_readable(readable: &ReadableViews, name: &str) -> bool {
    match readable {
        ReadableViews::All => true,
        ReadableViews::Matching(filter) => name.parse().is_ok_and(|name| filter(&name)),
    }
}

/// A report without the names of views that the caller may not read and that read this one.
pub(super) fn visible_report(caller: &Caller, mut report: ViewReport) -> ViewReport {
    let readable = readable_views(caller);
    report.read_by.retain(|name| is_readable(&readable, name));
    report
}

/// An error that counts the views and objects which need a view and which the caller may not know,
/// instead of naming them.
pub(super) fn hide_unreadable_names(readable: &ReadableViews, error: ViewsError) -> ViewsError {
    let ReadableViews::Matching(filter) = readable else {
        return error;
    };
    let ViewsError::InUse { name, dependents } = error else {
        return error;
    };
    let (mut visible, mut views, mut objects) = (Vec::new(), 0, 0);
    for dependent in dependents {
        match &dependent {
            Dependent::View(name) if name.parse().is_ok_and(|name| filter(&name)) => {
                visible.push(dependent);
            }
            Dependent::View(_) => views += 1,
            Dependent::Object(_) => objects += 1,
        }
    }
    if views > 0 {
        visible.push(Dependent::View(format!("{views} that this token may not read")));
    }
    if objects > 0 {
        visible.push(Dependent::Object(format!(
            "{objects} objects of the database, such as triggers: a token for all views lists them, with the statements that drop them"
        )));
    }
    ViewsError::InUse { name, dependents: visible }
}
