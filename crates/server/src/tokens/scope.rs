//! Scopes: `admin`, or an area (an engine, or one of the server's own) with an action.

use std::fmt;

use egret_base::settings::nearest;

/// The scope that includes every other.
pub const ADMIN: &str = "admin";

/// The areas of the server itself.
pub(super) const SERVER_AREAS: [&str; 2] = ["metrics", "status"];

/// What a token allows or an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Admin,
    /// One action in one area.
    Area {
        /// An engine's name, `metrics` or `status`.
        area: String,
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
        let known = areas.contains(&area);
        let action = match action {
            "read" => Some(Action::Read),
            "write" => Some(Action::Write),
            "*" => Some(Action::Any),
            _ => None,
        };
        match action {
            Some(action) if known => Ok(Scope::Area {
                area: area.to_owned(),
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
        match (granted.strip_suffix(":*"), needed.split_once(':')) {
            (Some(granted_area), Some((needed_area, _))) => granted_area == needed_area,
            _ => false,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Admin => f.write_str(ADMIN),
            Scope::Area { area, action } => {
                let action = match action {
                    Action::Read => "read",
                    Action::Write => "write",
                    Action::Any => "*",
                };
                write!(f, "{area}:{action}")
            }
        }
    }
}
