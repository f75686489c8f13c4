//! Scopes: `admin`, or an area (an engine, or one of the server's own) with an action; in some
//! areas a part of it.
//!
//! `queue/orders:produce` is the action `produce` on the part `orders` of the area `queue`. A part
//! that ends in `*` is a prefix of names. What an operation needs is written without a part: a
//! token with a part of the area passes, and its [`Reach`] is compared with the name where that is
//! known.

use std::fmt;

use egret_base::settings::nearest;

use super::model::{DEFAULT_TENANT, Token};

/// The scope that includes every other.
pub const ADMIN: &str = "admin";

/// The areas of the server itself.
pub(super) const SERVER_AREAS: [&str; 2] = ["metrics", "status"];

/// The area of the task queue, the only one with actions beyond `read` and `write`.
const QUEUE: &str = "queue";

/// The areas of which a scope may name a part, such as `documents/flights:read`.
const AREAS_WITH_PARTS: [&str; 4] = ["branches", "documents", QUEUE, "views"];

/// The area whose parts are whole names, which its engine compares itself.
const AREA_WITHOUT_PREFIXES: &str = "documents";

/// Bytes of a part's name, at most; one more for the `*` of a prefix.
const PART_BYTES_MAX: usize = 128;

/// What a token allows or an operation needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every action in every area.
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
    /// Read, without changing anything.
    Read,
    /// Change: create, alter and delete.
    Write,
    /// Enqueue tasks, and read the results of tasks by their ids.
    Produce,
    /// Claim tasks and report on them.
    Work,
    /// Make, change, pause, purge and delete queues and schedules; cancel, requeue, delete tasks.
    Operate,
    /// All actions of the area.
    Any,
}

impl Action {
    const ALL: [(Action, &str); 6] = [
        (Action::Read, "read"),
        (Action::Write, "write"),
        (Action::Produce, "produce"),
        (Action::Work, "work"),
        (Action::Operate, "operate"),
        (Action::Any, "*"),
    ];

    fn parse(text: &str, area: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        let is_general =
            |action: &Action| matches!(action, Action::Read | Action::Write | Action::Any);
        known.map(|(action, _)| *action).filter(|action| area == QUEUE || is_general(action))
    }

    fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(action, _)| *action == self);
        named.map_or("", |(_, name)| name)
    }
}

/// The parts of an area in which a token allows an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every part of the area.
    All,
    /// The parts with these names; one that ends in `*` is a prefix.
    Parts(Vec<String>),
}

impl Reach {
    /// Whether it includes a part.
    pub fn covers(&self, part: &str) -> bool {
        match self {
            Reach::All => true,
            Reach::Parts(parts) => parts.iter().any(|allowed| match allowed.strip_suffix('*') {
                Some(prefix) => part.starts_with(prefix),
                None => allowed == part,
            }),
        }
    }
}

/// A scope that cannot be read or names no known area.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a scope{}: write `admin`, or one of {} with `:read`, `:write` or `:*` (of `queue` also `:produce`, `:work`, `:operate`); {} take a name, as in `queue/orders:produce`", meant(.suggestion), .areas.join(", "), AREAS_WITH_PARTS.map(|area| format!("`{area}`")).join(", "))]
pub struct ScopeError {
    /// The text that is not a scope.
    pub text: String,
    /// The area that was probably meant.
    pub suggestion: Option<&'static str>,
    /// Names of the known areas.
    pub areas: Vec<&'static str>,
}

fn meant(area: &Option<&'static str>) -> String {
    area.map(|area| format!(" (did you mean `{area}`?)")).unwrap_or_default()
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
        let (area, action) = text.rsplit_once(':').unwrap_or((text, ""));
        let (area, part) = match area.split_once('/') {
            Some((area, part)) => (area, Some(part)),
            None => (area, None),
        };
        let is_known_area = areas.contains(&area);
        let is_whole_or_part = part.is_none_or(|part| is_valid_part(area, part));
        let action = Action::parse(action, area);
        match action {
            Some(action) if is_known_area && is_whole_or_part => {
                Ok(Scope::Area { area: area.to_owned(), part: part.map(str::to_owned), action })
            }
            _ => Err(ScopeError {
                text: text.chars().take(100).collect(),
                suggestion: nearest(area, areas.iter().copied()).filter(|_| !is_known_area),
                areas: areas.to_vec(),
            }),
        }
    }

    /// What [`Self::parse`] takes, as a regular expression.
    pub(crate) fn pattern(areas: &[&'static str]) -> String {
        let letter = "[A-Za-z0-9_.:-]";
        let name = format!("{letter}{{1,{PART_BYTES_MAX}}}");
        let prefix = format!("{letter}{{0,{PART_BYTES_MAX}}}[*]");
        let alternatives = areas
            .iter()
            .map(|area| {
                let part = if !AREAS_WITH_PARTS.contains(area) {
                    String::new()
                } else if *area == AREA_WITHOUT_PREFIXES {
                    format!("(?:/{name})?")
                } else {
                    format!("(?:/(?:{name}|{prefix}))?")
                };
                let actions = Action::ALL
                    .iter()
                    .filter(|(_, action)| Action::parse(action, area).is_some())
                    .map(|(_, action)| action.replace('*', "[*]"))
                    .collect::<Vec<_>>()
                    .join("|");
                format!("{area}{part}:(?:{actions})")
            })
            .collect::<Vec<_>>()
            .join("|");
        format!("^(?:{ADMIN}|{alternatives})$")
    }

    /// Whether a holder of `granted` may do what `needed` asks, in some part of the area at least.
    /// Both are canonical texts. `write` does not include other actions: an operation that `write`
    /// allows names it among its alternatives.
    pub fn allows(granted: &str, needed: &str) -> bool {
        if granted == ADMIN || granted == needed {
            return true;
        }
        let (Some((area, action)), Some((needed_area, needed_action))) =
            (granted.rsplit_once(':'), needed.rsplit_once(':'))
        else {
            return false;
        };
        let area = area.split_once('/').map_or(area, |(area, _)| area);
        area == needed_area && (action == "*" || action == needed_action)
    }

    /// Whether a scope concerns the whole server rather than one tenant.
    pub(crate) fn is_host_wide(text: &str) -> bool {
        let area = text.rsplit_once(':').map_or(text, |(area, _)| area);
        SERVER_AREAS.contains(&area)
    }
}

/// Whether a text names a part of this area.
fn is_valid_part(area: &str, part: &str) -> bool {
    let (name, is_prefix) = match part.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (part, false),
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    AREAS_WITH_PARTS.contains(&area)
        && !(is_prefix && area == AREA_WITHOUT_PREFIXES)
        && (is_prefix || !name.is_empty())
        && name.len() <= PART_BYTES_MAX
        && name.bytes().all(is_allowed)
}

impl Token {
    /// Whether the token allows what `needed` asks, in some part of its area at least. An `admin`
    /// of another tenant than the operator's has no right to what concerns the whole server.
    pub fn allows(&self, needed: &str) -> bool {
        self.scopes.iter().any(|granted| {
            if granted == ADMIN {
                self.belongs_to_operator() || !Scope::is_host_wide(needed)
            } else {
                Scope::allows(granted, needed)
            }
        })
    }

    /// Whether it belongs to the tenant of the operator.
    pub(crate) fn belongs_to_operator(&self) -> bool {
        self.tenant == DEFAULT_TENANT
    }

    /// The parts of `area` in which the token allows one of `actions`.
    pub fn reach(&self, area: &str, actions: &[&str]) -> Reach {
        let mut parts = Vec::new();
        for granted in &self.scopes {
            if granted == ADMIN {
                return Reach::All;
            }
            let Some((area_and_part, action)) = granted.rsplit_once(':') else {
                continue;
            };
            if action != "*" && !actions.contains(&action) {
                continue;
            }
            match area_and_part.split_once('/') {
                None if area_and_part == area => return Reach::All,
                Some((granted_area, part)) if granted_area == area => parts.push(part.to_owned()),
                _ => {}
            }
        }
        Reach::Parts(parts)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Admin => f.write_str(ADMIN),
            Scope::Area { area, part, action } => {
                let action = action.name();
                match part {
                    Some(part) => write!(f, "{area}/{part}:{action}"),
                    None => write!(f, "{area}:{action}"),
                }
            }
        }
    }
}
