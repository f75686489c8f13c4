//! `If-Match` and `If-None-Match` (RFC 9110, 13.1).

use egret_documents::core::decision::Condition;
use egret_documents::model::Etag;
use http::HeaderMap;
use http::header::{self, HeaderName};

use super::answer::parameter_error;
use crate::error::RequestError;

/// Parses the precondition of a request from its headers.
pub(super) fn parse_condition(headers: &HeaderMap) -> Result<Condition, RequestError> {
    let read_header = |name: HeaderName| {
        let texts = headers
            .get_all(&name)
            .iter()
            .map(|value| value.to_str())
            .collect::<Result<Vec<&str>, _>>()
            .map_err(|_| parameter_error("header", format!("{name} is not ASCII")))?;
        if texts.is_empty() {
            return Ok(None);
        }
        // Several lines are one list (RFC 9110, 5.3).
        let text = texts.join(",");
        check_syntax(&text).map_err(|what| parameter_error("header", format!("{name} {what}")))?;
        Ok(Some(text.trim().to_owned()))
    };
    let (if_match, if_none_match) =
        (read_header(header::IF_MATCH)?, read_header(header::IF_NONE_MATCH)?);
    match (if_match.as_deref(), if_none_match.as_deref()) {
        (None, None) => Ok(Condition::Always),
        (Some("*"), None) => Ok(Condition::IfThere),
        (None, Some("*")) => Ok(Condition::IfNotThere),
        // `If-Match` compares strongly: weak tags match nothing, nor do tags of another form than
        // ours.
        (Some(tags), None) => Ok(Condition::IfAt(strong_etags(tags).collect())),
        (None, Some(tags)) => Ok(Condition::IfNotAt(weak_etags(tags).collect())),
        (Some(_), Some(_)) => {
            Err(parameter_error("header", "If-Match and If-None-Match cannot be combined"))
        }
    }
}

/// Checks the syntax of a list of tags or `*`. Anything else is refused, as a condition that cannot
/// be parsed must not count as true.
pub(super) fn check_syntax(tags: &str) -> Result<(), String> {
    let mut rest = tags.trim();
    let mut is_valid = rest == "*" || !rest.is_empty();
    while is_valid && !rest.is_empty() && rest != "*" {
        let tag = rest.strip_prefix("W/").unwrap_or(rest);
        let after = tag.strip_prefix('"').and_then(|tag| tag.split_once('"'));
        let after = after.map(|(_, after)| after.trim_start());
        match after.map(|after| after.strip_prefix(',').map(str::trim_start)) {
            Some(Some(next)) => (rest, is_valid) = (next, !next.is_empty() && next != "*"),
            Some(None) => (rest, is_valid) = ("", after == Some("")),
            None => is_valid = false,
        }
    }
    if is_valid {
        Ok(())
    } else {
        Err("is neither an etag, unchanged and with its quotes, nor `*`".to_owned())
    }
}

pub(super) fn strong_etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    tags.split(',').filter_map(|tag| Etag::parse(tag.trim()))
}

pub(super) fn weak_etags(tags: &str) -> impl Iterator<Item = Etag> + use<'_> {
    let parse_weak = |tag: &str| Etag::parse(tag.strip_prefix("W/").unwrap_or(tag));
    tags.split(',').filter_map(move |tag| parse_weak(tag.trim()))
}

/// Whether the client has this version already, by `If-None-Match`.
pub(super) fn is_not_modified(headers: &HeaderMap, at: Etag) -> bool {
    let mut lines =
        headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    lines.any(|tags| tags.trim() == "*" || weak_etags(tags).any(|tag| tag == at))
}
