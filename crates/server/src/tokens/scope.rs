//! Scopes: `admin`, or an area (an engine, or one of the server's own) with an action; in some areas a part of it.

use std::fmt;

use egret_base::settings::nearest;

/// The scope that includes every other.
pub const ADMIN: &str = "admin";

/// The areas of the server itself.
pub(super) const SERVER_AREAS: [&str; 2] = ["metrics", "status"];

/// The areas of which a scope may name a part, such as `documents/flights:read`. Their engines look what the part is: an operation that needs the
/// area's scope lets those with a part of it pass.
const AREAS_WITH_PARTS: [&str; 1] = ["documents"];

/// Bytes of a part's name, at most.
const PART_BYTES_MAX: usize = 63;

/// What a token allows or an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Admin,
    /// One action in one area.
    Area {
        /// An engine's name, `metrics` or `status`.
        area: String,
        /// The part of the area; none: all of it.
        part: Option<String>,
        /// What may be done there.
        action: Action,
    },
}

/// What may be done in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look.
    Read,
    /// Change.
    Write,
    /// Both.
    Any,
}

/// A scope that cannot be read or names no known area.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a scope{}: write `admin`, or one of {} with `:read`, `:write` or `:*`", meant(.suggestion), .areas.join(", "))]
pub struct ScopeError {
    /// What was written.
    pub text: String,
    /// The area that was probably meant.
    pub suggestion: Option<&'static str>,
    /// The known areas.
    pub areas: Vec<&'static str>,
}

fn meant(area: &Option<&'static str>) -> String {
    area.map(|area| format!(" (did you mean `{area}`?)"))
        .unwrap_or_default()
}

impl Scope {
    /// Reads a scope whose area is one of `areas`.
    ///
    /// # Errors
    /// [`ScopeError`] with the known areas.
    pub fn parse(text: &str, areas: &[&'static str]) -> Result<Self, ScopeError> {
        if text == ADMIN {
            return Ok(Scope::Admin);
        }
        let (area, action) = text.split_once(':').unwrap_or((text, ""));
        let (area, part) = match area.split_once('/') {
            Some((area, part)) => (area, Some(part)),
            None => (area, None),
        };
        let known = areas.contains(&area);
        let is_part = |part: &str| {
            let is_sane = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
            let length = 1..=PART_BYTES_MAX;
            AREAS_WITH_PARTS.contains(&area)
                && length.contains(&part.len())
                && part.bytes().all(is_sane)
        };
        let is_whole_or_part = part.is_none_or(is_part);
        let action = match action {
            "read" => Some(Action::Read),
            "write" => Some(Action::Write),
            "*" => Some(Action::Any),
            _ => None,
        };
        match action {
            Some(action) if known && is_whole_or_part => Ok(Scope::Area {
                area: area.to_owned(),
                part: part.map(str::to_owned),
                action,
            }),
            _ => Err(ScopeError {
                text: text.chars().take(100).collect(),
                suggestion: nearest(area, areas.iter().copied()).filter(|_| !known),
                areas: areas.to_vec(),
            }),
        }
    }

    /// Whether a holder of `granted` may do what `needed` asks. Both are canonical texts.
    pub fn allows(granted: &str, needed: &str) -> bool {
        if granted == ADMIN || granted == needed {
            return true;
        }
        let (Some((area, action)), Some((needed_area, needed_action))) =
            (granted.split_once(':'), needed.split_once(':'))
        else {
            return false;
        };
        // Of which part is looked at where the operation is carried out.
        let area = area.split_once('/').map_or(area, |(area, _)| area);
        area == needed_area && (action == "*" || action == needed_action)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Admin => f.write_str(ADMIN),
            Scope::Area { area, part, action } => {
                let action = match action {
                    Action::Read => "read",
                    Action::Write => "write",
                    Action::Any => "*",
                };
                match part {
                    Some(part) => write!(f, "{area}/{part}:{action}"),
                    None => write!(f, "{area}:{action}"),
                }
            }
        }
    }
}
