//! `If-Match` and `If-None-Match` (RFC 9110, 13.1).

use egret_documents::core::decision::Condition;
use egret_documents::model::Etag;
use http::HeaderMap;
use http::header::{self, HeaderName};

use super::answer::refused;
use crate::error::RequestError;

/// Parses the precondition of a request from its headers.
pub(super) fn condition(headers: &HeaderMap) -> Result<Condition, RequestError> {
    let of = |name: HeaderName| {
        let texts = headers
            .get_all(&name)
            .iter()
            .map(|value| value.to_str())
            .collect::<Result<Vec<&str>, _>>()
            .map_err(|_| refused("header", format!("{name} is not ASCII")))?;
        if texts.is_empty() {
            return Ok(None);
        }
        // Several lines are one list (RFC 9110, 5.3).
        let text = texts.join(",");
        check(&text).map_err(|what| refused("header", format!("{name} {what}")))?;
        Ok(Some(text.trim().to_owned()))
    };
    let (if_match, if_none_match) = (of(header::IF_MATCH)?, of(header::IF_NONE_MATCH)?);
    match (if_match.as_deref(), if_none_match.as_deref()) {
        (None, None) => Ok(Condition::Always),
        (Some("*"), None) => Ok(Condition::IfThere),
        (None, Some("*")) => Ok(Condition::IfNotThere),
        // `If-Match` compares strongly: weak tags match nothing, nor do tags of another form than
        // ours.
        (Some(tags), None) => Ok(Condition::IfAt(etags(tags).collect())),
        (None, Some(tags)) => Ok(Condition::IfNotAt(weak_etags(tags).collect())),
        (Some(_), Some(_)) => Err(refused(
            "header",
            "If-Match and If-None-Match cannot be combined",
        )),
    }
}

/// Checks the syntax of a list of tags or `*`. Anything else is refused, as a condition that cannot
/// be parsed must not count as true.
pub(super) fn check(tags: &str) -> Result<(), String> {
    let mut left = tags.trim();
    let mut is_right = left == "*" || !left.is_empty();
    while is_right && !left.is_empty() && left != "*" {
        let tag = left.strip_prefix("W/").unwrap_or(left);
        let after = tag.strip_prefix('"').and_then(|tag| tag.split_once('"'));
        let after = after.map(|(_, after)| after.trim_start());
        match after.map(|after| after.strip_prefix(',').map(str::trim_start)) {
            Some(Some(next)) => (left, is_right) = (next, !next.is_empty() && next != "*"),
            Some(None) => (left, is_right) = ("", after == Some("")),
            None => is_right = false,
        }
    }
    if is_right {
        Ok(())
    } else {
        Err("is neither an etag, unchanged and with its quotes, nor `*`".to_owned())
    }
}

pub(super) fn etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    tags.split(',').filter_map(|tag| Etag::parse(tag.trim()))
}

pub(super) fn weak_etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    let bare = |tag: &str| Etag::parse(tag.strip_prefix("W/").unwrap_or(tag));
    tags.split(',').filter_map(move |tag| bare(tag.trim()))
}

/// Whether the client has this version already, by `If-None-Match`.
pub(super) fn is_known(headers: &HeaderMap, at: Etag) -> bool {
    let mut lines = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|tags| tags.to_str().ok());
    lines.any(|tags| tags.trim() == "*" || weak_etags(tags).any(|tag| tag == at))
}
