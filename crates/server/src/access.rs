//! Who calls and whether they may: the layer that stands before every handler.
//!
//! What an operation needs is read from its own documentation (the `security` of its OpenAPI
//! entry), so what `/docs` says is what is enforced. A route without documentation takes an admin
//! token; nothing is public unless it says so.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Method, header};

use crate::metrics::ComponentTime;
use crate::observe::RequestContext;
use crate::problem::Problem;
use crate::tokens::{ADMIN, Scope, Token, TokenError, Tokens};

/// Who is calling, as their token says.
#[derive(Clone, Debug)]
pub struct Caller(Arc<Token>);

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

    /// Whether the caller has a scope, `admin` included.
    pub fn may(&self, scope: &str) -> bool {
        self.0
            .scopes
            .iter()
            .any(|granted| Scope::allows(granted, scope))
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

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(|| Problem::from(TokenError::Missing))
    }
}

/// What an operation needs of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Nothing.
    Public,
    /// A token with all of these scopes.
    Scopes(Vec<String>),
}

/// The requirements of all documented operations, by path and method.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    by_path: HashMap<String, HashMap<Method, Requirement>>,
}

impl Requirements {
    /// Notes what one operation needs.
    pub(crate) fn insert(&mut self, path: &str, method: Method, requirement: Requirement) {
        let methods = self.by_path.entry(path.to_owned()).or_default();
        // axum answers HEAD with the handler of GET.
        if method == Method::GET {
            methods.insert(Method::HEAD, requirement.clone());
        }
        methods.insert(method, requirement);
    }

    /// What a request needs; `None` when the path is documented without this method, so that the
    /// request must not reach a handler.
    fn of(&self, path: &str, method: &Method) -> Option<Requirement> {
        match self.by_path.get(path) {
            Some(methods) => methods.get(method).cloned(),
            None => Some(Requirement::Scopes(vec![ADMIN.to_owned()])),
        }
    }

    /// Every documented path.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.by_path.keys().map(String::as_str)
    }

    /// The methods of a documented path as an `Allow` header has them.
    fn allowed(&self, path: &str) -> String {
        let mut methods: Vec<&str> = self
            .by_path
            .get(path)
            .map(|methods| methods.keys().map(Method::as_str).collect())
            .unwrap_or_default();
        methods.sort_unstable();
        methods.join(", ")
    }
}

/// What the layer holds.
pub(crate) struct Gate {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) requirements: Requirements,
    pub(crate) time: ComponentTime,
}

/// Lets a request pass to its handler when its token has the scopes its operation needs.
pub(crate) async fn authorize(
    State(gate): State<Arc<Gate>>,
    path: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    // Without a route there is nothing to protect: the answer is that there is none.
    let Some(path) = path else {
        return next.run(request).await;
    };
    let Some(requirement) = gate.requirements.of(path.as_str(), request.method()) else {
        let allowed = gate.requirements.allowed(path.as_str());
        return (
            http::StatusCode::METHOD_NOT_ALLOWED,
            [(header::ALLOW, allowed)],
        )
            .into_response();
    };
    let Requirement::Scopes(scopes) = requirement else {
        return next.run(request).await;
    };
    let outcome = gate
        .time
        .measure(|| check(&gate.tokens, request.headers(), &scopes));
    match outcome {
        Ok((caller, allowed)) => {
            if let Some(context) = request.extensions().get::<Arc<RequestContext>>() {
                context.note_caller(caller.clone());
            }
            if let Err(error) = allowed {
                return Problem::from(error).into_response();
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

/// The caller, and whether they have the scopes: one who lacks them is named in the log as well.
fn check(
    tokens: &Tokens,
    headers: &HeaderMap,
    scopes: &[String],
) -> Result<(Caller, Result<(), TokenError>), TokenError> {
    let text = bearer(headers)?;
    let caller = Caller(tokens.authenticate(text)?);
    let allowed = scopes.iter().try_for_each(|scope| caller.require(scope));
    Ok((caller, allowed))
}

/// The token in the `Authorization` header (RFC 6750).
fn bearer(headers: &HeaderMap) -> Result<&str, TokenError> {
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or(TokenError::Missing)?;
    let text = value.to_str().map_err(|_| TokenError::Invalid)?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(TokenError::Invalid),
    }
}
