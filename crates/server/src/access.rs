//! Who calls and whether they may: what stands before every handler.
//!
//! What an operation needs is read from its own documentation (the `security` of its OpenAPI
//! entry), so what `/docs` says is what is enforced. A route without documentation takes an admin
//! token; nothing is public unless it says so.

mod requirements;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use egret_views::model::ViewName;
use http::request::Parts;
use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

use crate::metrics::ComponentTime;
use crate::observe::RequestContext;
use crate::oidc::{Oidc, has_jwt_form};
use crate::problem::Problem;
use crate::tokens::{ADMIN, LiveToken, Reach, Scope, TokenError, Tokens};

pub(crate) use requirements::{Operation, Requirements};

/// Who is calling, as their token says.
#[derive(Clone, Debug)]
pub struct Caller(Arc<LiveToken>);

impl Caller {
    /// The token's public id.
    pub fn token_id(&self) -> &str {
        &self.0.id
    }

    /// The tenant whose things the caller sees.
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// What the caller may do.
    pub fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// What is true of the caller: values by names.
    pub fn claims(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.0.claims
    }

    /// The caller's token.
    pub(crate) fn token(&self) -> &Arc<LiveToken> {
        &self.0
    }

    /// Whether the caller has a scope, `admin` included, in some part of its area at least.
    pub fn may(&self, scope: &str) -> bool {
        self.0.allows(scope)
    }

    /// Whether the caller has a scope for all of its area.
    fn has_whole(&self, needed: &str) -> bool {
        self.0.scopes.iter().any(|granted| {
            let is_part = granted.contains('/');
            !is_part && Scope::allows(granted, needed)
        })
    }

    /// The parts of `area` in which the caller may do one of `actions`.
    pub fn reach(&self, area: &str, actions: &[&str]) -> Reach {
        self.0.reach(area, actions)
    }

    /// Insists that the caller may do one of `actions` in a part of an area.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403, whether there is such a part or not.
    pub fn require_part(&self, area: &str, part: &str, actions: &[&str]) -> Result<(), TokenError> {
        if self.reach(area, actions).covers(part) {
            return Ok(());
        }
        let action = actions.first().copied().unwrap_or("*");
        Err(TokenError::ScopeMissing {
            scope: format!("{area}/{part}:{action}"),
        })
    }

    /// Insists that the caller may do one of `actions` in all of an area.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403.
    pub fn require_whole(&self, area: &str, actions: &[&str]) -> Result<(), TokenError> {
        if self.reach(area, actions) == Reach::All {
            return Ok(());
        }
        let action = actions.first().copied().unwrap_or("*");
        Err(TokenError::ScopeMissing {
            scope: format!("{area}:{action}"),
        })
    }

    /// Insists that the caller belongs to the tenant of the operator.
    ///
    /// # Errors
    /// [`TokenError::OperatorOnly`], a 403.
    pub fn require_operator(&self) -> Result<(), TokenError> {
        if self.0.is_operators() {
            Ok(())
        } else {
            Err(TokenError::OperatorOnly)
        }
    }

    /// Insists on a scope beyond those the operation's documentation names.
    ///
    /// # Errors
    /// [`TokenError::ScopeMissing`], a 403.
    pub fn require(&self, scope: &str) -> Result<(), TokenError> {
        if self.may(scope) {
            return Ok(());
        }
        Err(TokenError::ScopeMissing {
            scope: scope.to_owned(),
        })
    }
}

/// The audit log's record of a request whose path does not say what it is about.
pub(crate) struct AuditSubject(Arc<RequestContext>);

impl AuditSubject {
    pub(crate) fn note(&self, object: &str) {
        self.0.note_object(object);
    }
}

impl<S: Sync> FromRequestParts<S> for AuditSubject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let context = parts.extensions.get::<Arc<RequestContext>>();
        let context = context.ok_or_else(|| Problem::from(TokenError::Missing))?;
        Ok(Self(context.clone()))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let context = parts.extensions.get::<Arc<RequestContext>>();
        let caller = context.and_then(|context| context.caller());
        caller
            .cloned()
            .ok_or_else(|| Problem::from(TokenError::Missing))
    }
}

/// What an operation needs of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Nothing.
    Public,
    /// A token with one of these scopes.
    Token {
        /// The alternatives, all of one area.
        any_of: Vec<String>,
        /// Where the part of the area is named that the request is about.
        part: PartPlace,
        /// Whether the operation concerns the whole server, so that only tokens of the operator's
        /// tenant pass.
        is_host_wide: bool,
    },
}

/// Where a request names the part of an area, with which the parts of the caller's scopes are
/// compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartPlace {
    /// Nowhere: a scope of a part does not suffice.
    Nowhere,
    /// In this segment of the path, counted from 0 with the empty one before the first slash.
    Segment(usize),
    /// The handler finds the part and compares it.
    Handler,
}

impl Requirement {
    /// What an operation needs that says nothing of itself.
    pub(crate) fn operator() -> Self {
        Requirement::Token {
            any_of: vec![ADMIN.to_owned()],
            part: PartPlace::Nowhere,
            is_host_wide: true,
        }
    }

    /// One of these scopes, of any tenant, for a handler that compares parts itself.
    pub(crate) fn any_of(scopes: &[&str]) -> Self {
        Requirement::Token {
            part: PartPlace::Handler,
            any_of: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            is_host_wide: false,
        }
    }
}

/// What a request's token and its operation say.
pub(crate) enum Decision {
    /// The request passes to its handler.
    Pass,
    /// The answer to a request that must not pass.
    Refuse(Response),
    /// The token is to be verified first, by [`Gate::verify`]; then [`Gate::decide`] is asked.
    Verify(String),
}

/// What decides.
pub(crate) struct Gate {
    pub(crate) tokens: Arc<Tokens>,
    /// `None` where tokens of Egret's own are the only ones.
    pub(crate) oidc: Option<Arc<Oidc>>,
    pub(crate) requirements: Requirements,
    pub(crate) time: ComponentTime,
}

impl Gate {
    /// Decides on a request. Notes in its context who calls. Without a route there is nothing to protect: the answer is
    /// that there is none.
    pub(crate) fn examine(
        &self,
        path: Option<&MatchedPath>,
        request: &Request,
        context: &RequestContext,
    ) -> Decision {
        let Some(path) = path else {
            return Decision::Pass;
        };
        let Some(guarded) = self.requirements.of(path.as_str(), request.method()) else {
            let allowed = self.requirements.allowed(path.as_str());
            let status = http::StatusCode::METHOD_NOT_ALLOWED;
            let response = (status, [(header::ALLOW, allowed)]).into_response();
            return Decision::Refuse(response);
        };
        if guarded.requirement == Requirement::Public {
            return Decision::Pass;
        }
        context.note_operation(guarded.operation.clone());
        let known = self.time.measure(|| self.recognize(request.headers()));
        match known {
            Ok(Identity::Known(token)) => self.decide(path, request, context, Ok(token)),
            Ok(Identity::Unverified(text)) => Decision::Verify(text),
            Err(error) => self.decide(path, request, context, Err(error)),
        }
    }

    /// Decides on a request whose token is known.
    pub(crate) fn decide(
        &self,
        path: &MatchedPath,
        request: &Request,
        context: &RequestContext,
        token: Result<Arc<LiveToken>, TokenError>,
    ) -> Decision {
        let allowed = token.and_then(|token| {
            let caller = Caller(token);
            // A caller who is refused is named in the log as well.
            let allowed = match self.requirements.of(path.as_str(), request.method()) {
                Some(guarded) => meets(&caller, request.uri().path(), &guarded.requirement),
                None => meets(&caller, request.uri().path(), &Requirement::operator()),
            };
            context.note_caller(caller);
            allowed
        });
        match allowed {
            Ok(()) => Decision::Pass,
            Err(error) => Decision::Refuse(Problem::from(error).into_response()),
        }
    }

    /// Verifies the token of an OpenID Connect provider; may wait a moment for the provider's keys.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn verify(
        &self,
        text: &str,
        client: Option<IpAddr>,
    ) -> Result<Arc<LiveToken>, TokenError> {
        match &self.oidc {
            Some(oidc) => oidc.verify(text, client).await,
            None => Err(TokenError::Invalid),
        }
    }

    /// Whose token a request carries. Every token of HTTP and gRPC passes here.
    fn recognize(&self, headers: &HeaderMap) -> Result<Identity, TokenError> {
        let text = presented(headers)?;
        let Some(oidc) = self.oidc.as_ref().filter(|_| has_jwt_form(&text)) else {
            return self.tokens.authenticate(&text).map(Identity::Known);
        };
        Ok(match oidc.recall(&text)? {
            Some(token) => Identity::Known(token),
            None => Identity::Unverified(text.into_owned()),
        })
    }
}

/// Whose token a request carries.
enum Identity {
    /// A token that is known and has not ended.
    Known(Arc<LiveToken>),
    /// A token of the issuer's form that was not verified yet.
    Unverified(String),
}

fn meets(caller: &Caller, path: &str, requirement: &Requirement) -> Result<(), TokenError> {
    let Requirement::Token {
        any_of,
        part,
        is_host_wide,
    } = requirement
    else {
        return Ok(());
    };
    if !any_of.iter().any(|scope| caller.may(scope)) {
        return Err(TokenError::ScopeMissing {
            scope: any_of.join("` or `"),
        });
    }
    if *is_host_wide {
        caller.require_operator()?;
    }
    // Most tokens have whole areas, and the part does not matter.
    if *part == PartPlace::Handler || any_of.iter().any(|scope| caller.has_whole(scope)) {
        return Ok(());
    }
    let area = any_of.first().and_then(|scope| scope.split_once(':'));
    let area = area.map_or(ADMIN, |(area, _)| area);
    let actions: Vec<&str> = any_of
        .iter()
        .filter_map(|scope| scope.split_once(':'))
        .map(|(_, action)| action)
        .collect();
    match *part {
        PartPlace::Segment(at) => {
            let segment = path.split('/').nth(at).unwrap_or_default();
            let name = percent_decode_str(segment).decode_utf8_lossy();
            caller.require_part(area, &part_name(area, &name), &actions)
        }
        PartPlace::Nowhere | PartPlace::Handler => caller.require_whole(area, &actions),
    }
}

/// The name of a part as scopes have it. Views in schema `public` go without the schema, and all of them without quotes
/// that SQL does not need: the text `pub"lic".other` is no view whose name begins with `pub`.
pub(crate) fn part_name<'n>(area: &str, name: &'n str) -> Cow<'n, str> {
    if area != "views" {
        return name.into();
    }
    // What is no name of a view is refused by the handler.
    let Ok(parsed) = name.parse::<ViewName>() else {
        return name.into();
    };
    let full = parsed.to_string();
    match full.strip_prefix("public.") {
        Some(short) => short.to_owned().into(),
        None => full.into(),
    }
}

/// The token in the `Authorization` header: as a bearer (RFC 6750), as Influx's clients send it, or as the password of
/// a user of any name (RFC 7617), which is all that some senders of metrics can do.
fn presented(headers: &HeaderMap) -> Result<Cow<'_, str>, TokenError> {
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or(TokenError::Missing)?;
    let text = value.to_str().map_err(|_| TokenError::Invalid)?;
    let (scheme, rest) = text.split_once(' ').ok_or(TokenError::Invalid)?;
    let is = |name| scheme.eq_ignore_ascii_case(name);
    if is("bearer") || is("token") {
        return Ok(rest.trim().into());
    }
    let password = || {
        let pair = BASE64_STANDARD.decode(rest.trim()).ok()?;
        let pair = String::from_utf8(pair).ok()?;
        let (_, password) = pair.split_once(':')?;
        Some(password.to_owned().into())
    };
    match is("basic") {
        true => password().ok_or(TokenError::Invalid),
        false => Err(TokenError::Invalid),
    }
}
