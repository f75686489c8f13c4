//! `If-Match` and `If-None-Match` (RFC 9110, 13.1).

use egret_documents::core::decide::{Condition, Etag};
use http::HeaderMap;
use http::header::{self, HeaderName};

use super::request::refused;
use crate::error::RequestError;

/// Under which condition a request is to be done, as its headers have it.
pub(super) fn condition(headers: &HeaderMap) -> Result<Condition, RequestError> {
    let of = |name: HeaderName| match headers.get(&name) {
        None => Ok(None),
        Some(value) => {
            let text = value.to_str().ok();
            let text = text.ok_or_else(|| refused("header", format!("{name} is not ASCII")))?;
            check(text).map_err(|what| refused("header", format!("{name} {what}")))?;
            Ok(Some(text.trim()))
        }
    };
    match (of(header::IF_MATCH)?, of(header::IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Always),
        (Some("*"), None) => Ok(Condition::IfThere),
        (None, Some("*")) => Ok(Condition::IfNotThere),
        // A weak one matches nothing here; of the rest only those that this server gives can.
        (Some(tags), None) => Ok(Condition::IfAt(etags(tags).collect())),
        (None, Some(tags)) => Ok(Condition::IfNotAt(weak_etags(tags).collect())),
        (Some(_), Some(_)) => Err(refused(
            "header",
            "either If-Match or If-None-Match, not both",
        )),
    }
}

/// Fails where something else stands than tags or `*`: a condition that nobody understands does not hold.
pub(super) fn check(tags: &str) -> Result<(), String> {
    let tags = tags.trim();
    let begins = tags.starts_with('"') || tags.starts_with("W/\"");
    match tags == "*" || (begins && tags.len() > 1 && tags.ends_with('"')) {
        true => Ok(()),
        false => Err("is no etag as it was given, with its quotes, and not `*`".to_owned()),
    }
}

pub(super) fn etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    tags.split(',').filter_map(|tag| Etag::parse(tag.trim()))
}

pub(super) fn weak_etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    let bare = |tag: &str| Etag::parse(tag.strip_prefix("W/").unwrap_or(tag));
    tags.split(',').filter_map(move |tag| bare(tag.trim()))
}

/// Whether a reader has a version already.
pub(super) fn is_known(headers: &HeaderMap, at: Etag) -> bool {
    let tags = headers.get(header::IF_NONE_MATCH);
    let tags = tags.and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    tags.trim() == "*" || weak_etags(tags).any(|tag| tag == at)
}
