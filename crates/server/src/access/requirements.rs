//! What each documented operation needs of its caller, and which of them the audit log has.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use crate::audit::OBJECT_BYTES_MAX;
use crate::tokens::ADMIN;

/// What an operation needs of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
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
    /// The requirement of an operation without `security`: scope `admin` of the operator's tenant.
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

/// An operation as the audit log names it.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its id in the OpenAPI document or the gRPC contract.
    pub(crate) id: String,
    /// The pattern of its path.
    pub(crate) path: String,
    /// Whether the audit log has every call of it, and not only refused ones.
    pub(crate) is_audited: bool,
    pub(crate) transfer: Transfer,
}

/// How the requests of an operation are admitted; most are answered soon and have one short body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// They last as long as their clients want.
    pub(crate) is_long_lived: bool,
    /// Their bodies have limits of their own: a gRPC stream is bounded message by message, an
    /// attachment as it is written.
    pub(crate) has_streamed_body: bool,
}

impl Operation {
    /// The names in a request's path, as the audit log has them.
    pub(crate) fn object(&self, path: &str) -> Option<String> {
        let segments = self.path.split('/').zip(path.split('/'));
        let names: Vec<&str> = segments
            .filter(|(pattern, _)| pattern.starts_with('{'))
            .map(|(_, name)| name)
            .collect();
        let mut object = names.join("/");
        object.truncate(object.floor_char_boundary(OBJECT_BYTES_MAX));
        (!object.is_empty()).then_some(object)
    }
}

/// Operations that change much and often, or nothing, although their scopes are those of changes.
const NOT_AUDITED: [&str; 3] = ["queryBranch", "validateView", "Follow"];

/// Whether the audit log has every call of an operation: what an operator does, not the traffic of
/// tasks, documents and samples.
fn is_audited(id: &str, method: &Method, requirement: &Requirement) -> bool {
    let Requirement::Token { any_of, .. } = requirement else {
        return false;
    };
    let has_scope = |wanted: &str| any_of.iter().any(|scope| scope == wanted);
    let is_read = method == Method::GET || method == Method::HEAD;
    let is_subscription =
        has_scope("documents:read") && (method == Method::PUT || method == Method::DELETE);
    !NOT_AUDITED.contains(&id)
        && ((has_scope(ADMIN) && !is_read)
            || is_subscription
            || ["queue:operate", "branches:write", "views:write"]
                .iter()
                .any(|scope| has_scope(scope)))
}

/// The requirement and the audit name of one method of a path.
#[derive(Debug)]
pub(crate) struct OperationAccess {
    pub(super) requirement: Requirement,
    pub(super) operation: Arc<Operation>,
}

/// The requirements of all documented operations, by path and method.
#[derive(Debug)]
pub(crate) struct Requirements {
    by_path: HashMap<String, HashMap<Method, Arc<OperationAccess>>>,
    /// Access to routes without documentation.
    undocumented: Arc<OperationAccess>,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            by_path: HashMap::new(),
            undocumented: Arc::new(OperationAccess {
                requirement: Requirement::operator(),
                operation: Arc::new(Operation {
                    id: "undocumented".to_owned(),
                    path: String::new(),
                    is_audited: true,
                    transfer: Transfer::default(),
                }),
            }),
        }
    }
}

impl Requirements {
    /// Adds the requirement of one operation.
    pub(crate) fn insert(
        &mut self,
        path: &str,
        method: Method,
        id: &str,
        transfer: Transfer,
        requirement: Requirement,
    ) {
        let access = Arc::new(OperationAccess {
            operation: Arc::new(Operation {
                id: id.to_owned(),
                path: path.to_owned(),
                is_audited: is_audited(id, &method, &requirement),
                transfer,
            }),
            requirement,
        });
        let methods = self.by_path.entry(path.to_owned()).or_default();
        // axum answers HEAD with the handler of GET.
        if method == Method::GET {
            methods.insert(Method::HEAD, access.clone());
        }
        methods.insert(method, access);
    }

    /// What a request needs; `None` when the path is documented without this method, so that the
    /// request must not reach a handler.
    pub(super) fn find(&self, path: &str, method: &Method) -> Option<&OperationAccess> {
        match self.by_path.get(path) {
            Some(methods) => methods.get(method).map(|guarded| &**guarded),
            None => Some(&self.undocumented),
        }
    }

    /// Every documented path without wildcards, in order.
    pub(crate) fn documented_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> =
            self.by_path.keys().filter(|path| !path.contains('*')).cloned().collect();
        paths.sort_unstable();
        paths
    }

    /// The methods of a documented path as an `Allow` header has them.
    pub(super) fn allowed_methods(&self, path: &str) -> String {
        let mut methods: Vec<&str> = self
            .by_path
            .get(path)
            .map(|methods| methods.keys().map(Method::as_str).collect())
            .unwrap_or_default();
        methods.sort_unstable();
        methods.join(", ")
    }
}
