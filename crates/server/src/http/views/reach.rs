//! What a caller's scopes reach among the views: what a new view may read, and which names are told.

use std::sync::Arc;

use egret_views::ViewsError;
use egret_views::model::{Grants, MakerRights, ReadableViews, ViewName, ViewReport};

use crate::access::{Caller, part_name};
use crate::tokens::{ADMIN, Reach};

const AREA: &str = "views";

/// The views that a caller may read.
pub(super) fn readable(caller: &Caller) -> ReadableViews {
    match caller.reach(AREA, &["read"]) {
        Reach::All => ReadableViews::All,
        parts => ReadableViews::Matching(Arc::new(move |name: &ViewName| {
            parts.covers(&part_name(AREA, &name.to_string()))
        })),
    }
}

/// What a caller may have a view read. To grant `egret_views` what users' tables hold is an administrator's.
pub(super) fn maker_rights(caller: &Caller) -> MakerRights {
    let grants = if caller.may(ADMIN) {
        Grants::Reads
    } else {
        Grants::Nothing
    };
    MakerRights {
        grants,
        readable: readable(caller),
    }
}

fn is_readable(readable: &ReadableViews, name: &str) -> bool {
    match readable {
        ReadableViews::All => true,
        ReadableViews::Matching(filter) => name.parse().is_ok_and(|name| filter(&name)),
    }
}

/// A report without the names of views that the caller may not read and that read this one.
pub(super) fn shown(caller: &Caller, mut report: ViewReport) -> ViewReport {
    let readable = readable(caller);
    report.read_by.retain(|name| is_readable(&readable, name));
    report
}

/// An error that counts the readers of a view which the caller may not read, instead of naming them.
pub(super) fn without_hidden_names(readable: &ReadableViews, error: ViewsError) -> ViewsError {
    let ViewsError::InUse { name, readers } = error else {
        return error;
    };
    let count = readers.len();
    let mut named: Vec<String> = readers
        .into_iter()
        .filter(|reader| is_readable(readable, reader))
        .collect();
    let hidden = count - named.len();
    if hidden > 0 {
        named.push(format!("{hidden} that this token may not read"));
    }
    ViewsError::InUse {
        name,
        readers: named,
    }
}
