//! What each documented operation needs of its caller, and which of them the audit log has.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use super::Requirement;
use crate::audit::OBJECT_BYTES_MAX;
use crate::tokens::ADMIN;

/// An operation as the audit log names it.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its id in the OpenAPI document or the gRPC contract.
    pub(crate) id: String,
    /// The pattern of its path.
    pub(crate) path: String,
    /// Whether the audit log has every call of it, and not only refused ones.
    pub(crate) is_audited: bool,
}

impl Operation {
    /// The names in a request's path, as the audit log has them.
    pub(crate) fn object(&self, path: &str) -> Option<String> {
        let segments = self.path.split('/').zip(path.split('/'));
        let names = segments.filter(|(pattern, _)| pattern.starts_with('{'));
        let names: Vec<&str> = names.map(|(_, name)| name).collect();
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
    let has = |wanted: &str| any_of.iter().any(|scope| scope == wanted);
    let reads_only = method == Method::GET || method == Method::HEAD;
    let is_subscription =
        has("documents:read") && (method == Method::PUT || method == Method::DELETE);
    !NOT_AUDITED.contains(&id)
        && ((has(ADMIN) && !reads_only)
            || is_subscription
            || ["queue:operate", "branches:write", "views:write"]
                .iter()
                .any(|scope| has(scope)))
}

/// What is known of one method of a path.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) requirement: Requirement,
    pub(super) operation: Arc<Operation>,
}

/// The requirements of all documented operations, by path and method.
#[derive(Debug)]
pub(crate) struct Requirements {
    by_path: HashMap<String, HashMap<Method, Arc<Guarded>>>,
    /// Of a route without documentation.
    otherwise: Arc<Guarded>,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            by_path: HashMap::new(),
            otherwise: Arc::new(Guarded {
                requirement: Requirement::operator(),
                operation: Arc::new(Operation {
                    id: "undocumented".to_owned(),
                    path: String::new(),
                    is_audited: true,
                }),
            }),
        }
    }
}

impl Requirements {
    /// Notes what one operation needs.
    pub(crate) fn insert(
        &mut self,
        path: &str,
        method: Method,
        id: &str,
        requirement: Requirement,
    ) {
        let guarded = Arc::new(Guarded {
            operation: Arc::new(Operation {
                id: id.to_owned(),
                path: path.to_owned(),
                is_audited: is_audited(id, &method, &requirement),
            }),
            requirement,
        });
        let methods = self.by_path.entry(path.to_owned()).or_default();
        // axum answers HEAD with the handler of GET.
        if method == Method::GET {
            methods.insert(Method::HEAD, guarded.clone());
        }
        methods.insert(method, guarded);
    }

    /// What a request needs; `None` when the path is documented without this method, so that the
    /// request must not reach a handler.
    pub(super) fn of(&self, path: &str, method: &Method) -> Option<&Guarded> {
        match self.by_path.get(path) {
            Some(methods) => methods.get(method).map(|guarded| &**guarded),
            None => Some(&self.otherwise),
        }
    }

    /// Every documented path without wildcards, in order.
    pub(crate) fn documented_paths(&self) -> Vec<String> {
        let paths = self.by_path.keys().filter(|path| !path.contains('*'));
        let mut paths: Vec<String> = paths.cloned().collect();
        paths.sort_unstable();
        paths
    }

    /// The methods of a documented path as an `Allow` header has them.
    pub(super) fn allowed(&self, path: &str) -> String {
        let mut methods: Vec<&str> = self
            .by_path
            .get(path)
            .map(|methods| methods.keys().map(Method::as_str).collect())
            .unwrap_or_default();
        methods.sort_unstable();
        methods.join(", ")
    }
}
