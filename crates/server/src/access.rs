//! Authentication and authorization of callers, before every handler.
//!
//! The requirements of an operation are read from its own documentation (the `security` of its
//! OpenAPI entry), so what `/docs` says is what is enforced. A route without documentation takes an
//! admin token; nothing is public unless it says so.

mod caller;
mod requirements;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use egret_views::model::ViewName;
use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

use crate::metrics::ComponentTime;
use crate::oidc::{Oidc, has_jwt_form};
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::tokens::{ADMIN, LiveToken, TokenError, Tokens};

pub use caller::Caller;
pub(crate) use requirements::{
    Operation, OperationAccess, PartPlace, Requirement, Requirements, Transfer,
};

/// Result of comparing a request's token with its operation's requirement.
pub(crate) enum Decision<'g> {
    /// The request passes to its handler.
    Pass,
    /// The answer to a request that must not pass.
    Refuse(Response),
    /// The token must be verified by [`Authorizer::verify`] before the requirement can be checked.
    Verify(String, &'g OperationAccess),
}

pub(crate) struct Authorizer {
    pub(crate) tokens: Arc<Tokens>,
    /// `None` where tokens of Egret's own are the only ones.
    pub(crate) oidc: Option<Arc<Oidc>>,
    pub(crate) requirements: Requirements,
    pub(crate) component_time: ComponentTime,
}

impl Authorizer {
    /// Decides on a request, and notes its caller in its context. A request without a route passes:
    /// the router answers it with 404.
    pub(crate) fn authorize(
        &self,
        path: Option<&MatchedPath>,
        request: &Request,
        context: &RequestContext,
    ) -> Decision<'_> {
        let Some(path) = path else {
            return Decision::Pass;
        };
        let Some(access) = self.requirements.find(path.as_str(), request.method()) else {
            let allowed_methods = self.requirements.allowed_methods(path.as_str());
            let status = http::StatusCode::METHOD_NOT_ALLOWED;
            let response = (status, [(header::ALLOW, allowed_methods)]).into_response();
            return Decision::Refuse(response);
        };
        if access.requirement == Requirement::Public {
            return Decision::Pass;
        }
        context.set_operation(access.operation.clone());
        let identity = self.component_time.measure(|| self.identify_token(request.headers()));
        match identity {
            Ok(Identity::Known(token)) => {
                self.decide_with_token(access, request, context, Ok(token))
            }
            Ok(Identity::Unverified(token_text)) => Decision::Verify(token_text, access),
            Err(error) => self.decide_with_token(access, request, context, Err(error)),
        }
    }

    /// Decides on a request whose token is known.
    pub(crate) fn decide_with_token(
        &self,
        access: &OperationAccess,
        request: &Request,
        context: &RequestContext,
        token: Result<Arc<LiveToken>, TokenError>,
    ) -> Decision<'static> {
        let result = token.and_then(|token| {
            let caller = Caller(token);
            // The access log and the audit log name refused callers as well.
            let allowed = check_requirement(&caller, request.uri().path(), &access.requirement);
            context.set_caller(caller);
            allowed
        });
        match result {
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
        token_text: &str,
        client: Option<IpAddr>,
    ) -> Result<Arc<LiveToken>, TokenError> {
        match &self.oidc {
            Some(oidc) => oidc.verify(token_text, client).await,
            None => Err(TokenError::Invalid),
        }
    }

    /// Looks up the token of a request. Every token of HTTP and gRPC passes here.
    fn identify_token(&self, headers: &HeaderMap) -> Result<Identity, TokenError> {
        let token_text = token_from_headers(headers)?;
        let Some(oidc) = self.oidc.as_ref().filter(|_| has_jwt_form(&token_text)) else {
            return self.tokens.authenticate(&token_text).map(Identity::Known);
        };
        Ok(match oidc.find_verified(&token_text)? {
            Some(token) => Identity::Known(token),
            None => Identity::Unverified(token_text.into_owned()),
        })
    }
}

/// The token that a request carries.
enum Identity {
    /// A token that is known and has not ended.
    Known(Arc<LiveToken>),
    /// A token of the issuer's form that was not verified yet.
    Unverified(String),
}

fn check_requirement(
    caller: &Caller,
    path: &str,
    requirement: &Requirement,
) -> Result<(), TokenError> {
    let Requirement::Token { any_of, part, is_host_wide } = requirement else {
        return Ok(());
    };
    if !any_of.iter().any(|scope| caller.has_scope(scope)) {
        return Err(TokenError::ScopeMissing { scope: any_of.join("` or `") });
    }
    if *is_host_wide {
        caller.require_operator()?;
    }
    // Most tokens have whole areas, and the part does not matter.
    if *part == PartPlace::Handler || any_of.iter().any(|scope| caller.has_whole_area(scope)) {
        return Ok(());
    }
    let area = any_of.first().and_then(|scope| scope.split_once(':'));
    let area = area.map_or(ADMIN, |(area, _)| area);
    let actions: Vec<&str> =
        any_of.iter().filter_map(|scope| scope.split_once(':')).map(|(_, action)| action).collect();
    match *part {
        PartPlace::Segment(index) => {
            let segment = path.split('/').nth(index).unwrap_or_default();
            let name = percent_decode_str(segment).decode_utf8_lossy();
            caller.require_part(area, &part_name(area, &name), &actions)
        }
        PartPlace::Nowhere | PartPlace::Handler => caller.require_whole_area(area, &actions),
    }
}

/// The name of a part as scopes have it. Views in schema `public` go without the schema, and all of
/// them without quotes that SQL does not need: the text `pub"lic".other` is no view whose name
/// begins with `pub`.
pub(crate) fn part_name<'n>(area: &str, name: &'n str) -> Cow<'n, str> {
    if area != "views" {
        return name.into();
    }
    // What is no name of a view is refused by the handler.
    let Ok(parsed) = name.parse::<ViewName>() else {
        return name.into();
    };
    let full_name = parsed.to_string();
    match full_name.strip_prefix("public.") {
        Some(short_name) => short_name.to_owned().into(),
        None => full_name.into(),
    }
}

/// The token in the `Authorization` header: as a bearer (RFC 6750), as Influx's clients send it, or
/// as the password of a user of any name (RFC 7617), which is all that some senders of metrics can
/// do.
fn token_from_headers(headers: &HeaderMap) -> Result<Cow<'_, str>, TokenError> {
    let value = headers.get(header::AUTHORIZATION).ok_or(TokenError::Missing)?;
    let text = value.to_str().map_err(|_| TokenError::Invalid)?;
    let (scheme, credentials) = text.split_once(' ').ok_or(TokenError::Invalid)?;
    let is_scheme = |name| scheme.eq_ignore_ascii_case(name);
    if is_scheme("bearer") || is_scheme("token") {
        return Ok(credentials.trim().into());
    }
    let read_password = || {
        let pair = BASE64_STANDARD.decode(credentials.trim()).ok()?;
        let pair = String::from_utf8(pair).ok()?;
        let (_, password) = pair.split_once(':')?;
        Some(password.to_owned().into())
    };
    if is_scheme("basic") {
        read_password().ok_or(TokenError::Invalid)
    } else {
        Err(TokenError::Invalid)
    }
}
