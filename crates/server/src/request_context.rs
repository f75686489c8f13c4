//! Facts about a request in progress, from its head to its response's last byte, and the extractors
//! by which handlers read them.

use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, Request};
use http::request::Parts;

use crate::access::{Caller, Operation, Transfer};
use crate::audit::OBJECT_BYTES_MAX;
use crate::error::RequestError;
use crate::forwarded::ClientAddress;
use crate::peer::PublicPermit;
use crate::problem::Problem;
use crate::quota::Permit;
use crate::tokens::TokenError;

/// Facts about a request in progress; stored as an extension of the request.
#[derive(Debug)]
pub(crate) struct RequestContext {
    id: String,
    /// The path as it was sent.
    path: String,
    /// Address of the client's end of the connection.
    client: Option<ClientAddress>,
    body_bytes_max: u64,
    operation: OnceLock<Arc<Operation>>,
    object: OnceLock<String>,
    caller: OnceLock<Caller>,
    permit: OnceLock<AdmissionPermit>,
}

impl RequestContext {
    /// Creates the context of a request whose head has arrived.
    pub(crate) fn new(id: String, request: &Request, body_bytes_max: u64) -> Self {
        Self {
            id,
            path: request.uri().path().to_owned(),
            client: request.extensions().get::<ClientAddress>().copied(),
            body_bytes_max,
            operation: OnceLock::new(),
            object: OnceLock::new(),
            caller: OnceLock::new(),
            permit: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The path as it was sent.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Address of the client's end of the connection.
    pub(crate) fn client(&self) -> Option<ClientAddress> {
        self.client
    }

    /// The caller; `None` until the token is verified.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.caller.get()
    }

    /// The size that the body may have, in bytes.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.body_bytes_max
    }

    /// The operation; `None` where a request has no route, or one that takes no token.
    pub(crate) fn operation(&self) -> Option<&Operation> {
        self.operation.get().map(|operation| &**operation)
    }

    /// The object of the request: the noted one, else the names in its path.
    pub(crate) fn object(&self) -> Option<String> {
        let noted = self.object.get().cloned();
        noted.or_else(|| self.operation()?.object(&self.path))
    }

    /// How the request's operation is admitted.
    pub(crate) fn transfer(&self) -> Transfer {
        let operation = self.operation.get();
        operation.map_or_else(Transfer::default, |operation| operation.transfer)
    }

    pub(crate) fn set_operation(&self, operation: Arc<Operation>) {
        // A request has one operation.
        let _ = self.operation.set(operation);
    }

    /// Records the object of a request for the audit log if its path does not name it.
    pub(crate) fn set_object(&self, object: &str) {
        let end = object.floor_char_boundary(OBJECT_BYTES_MAX);
        // The first note stays.
        let _ = self.object.set(object[..end].to_owned());
    }

    pub(crate) fn set_caller(&self, caller: Caller) {
        // A request has one caller; a second note would be the same.
        let _ = self.caller.set(caller);
    }

    /// Holds the permit of the request until the response's last byte.
    pub(crate) fn set_permit(&self, permit: AdmissionPermit) {
        // A request is admitted once.
        let _ = self.permit.set(permit);
    }

    /// Counts memory for the request's body before it is allocated. Without a token none is read.
    pub(crate) fn reserve_body(&self, bytes: u64) -> Result<(), RequestError> {
        match self.permit.get() {
            Some(AdmissionPermit::Token(permit)) => permit.reserve_body(bytes),
            Some(AdmissionPermit::Public(_)) | None => Ok(()),
        }
    }
}

/// The permit of a request in progress.
#[derive(Debug)]
pub(crate) enum AdmissionPermit {
    /// The quotas of its token.
    Token(Arc<Permit>),
    /// The bounds of its connection and address.
    Public(#[expect(dead_code, reason = "the value is held until the drop")] PublicPermit),
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let context = parts.extensions.get::<Arc<RequestContext>>();
        let caller = context.and_then(|context| context.caller());
        caller.cloned().ok_or_else(|| Problem::from(TokenError::Missing))
    }
}

/// Lets a handler record the object of its request for the audit log if the path does not name it.
pub(crate) struct AuditSubject(Arc<RequestContext>);

impl AuditSubject {
    pub(crate) fn set_object(&self, object: &str) {
        self.0.set_object(object);
    }
}

impl<S: Sync> FromRequestParts<S> for AuditSubject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let context = parts
            .extensions
            .get::<Arc<RequestContext>>()
            .ok_or_else(|| Problem::from(TokenError::Missing))?;
        Ok(Self(context.clone()))
    }
}
